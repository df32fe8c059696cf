"""The classes of a run, a file or a data set."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmengine.logging import print_log

from .errors import UserError, listed


@dataclass(frozen=True)
class Classes:
    """Hold the names of classes in the order of their numbers; without names it is false.

    Attributes:
        names: the names.
        source: the file or the setting that numbers them, for messages.
    """
    names: tuple[str, ...] = ()
    source: str = ''

    @classmethod
    def of_file(cls, content: Mapping[str, Any], source: str) -> 'Classes':
        """Return the classes of a checkpoint's content, or of an exported file's metadata."""
        names = ((content.get('meta') or {}).get('dataset_meta') or {}).get('classes') or content.get('classes')
        return cls(tuple(names) if isinstance(names, list | tuple) else (), source)

    @classmethod
    def of_data(cls, dataset: Any, stage: str) -> 'Classes':
        """Return the classes of a data set that is built; ``stage`` is 'train', 'val' or 'test'."""
        names = (getattr(dataset, 'metainfo', None) or {}).get('classes')
        return cls(tuple(names or ()), f'metainfo.classes of {stage}_dataloader')

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        return listed(map(repr, self.names), 10)

    @property
    def spelled(self) -> list[str]:
        """The names as they are compared with others."""
        return [str(name).casefold().replace('_', ' ') for name in self.names]

    def check_order(self, data: 'Classes') -> None:
        """Check that every class of both lists has the same number in both, because a network's outputs have no names.

        Nothing is checked where either has no names.

        Raises:
            UserError: a class has different numbers in the two, or they differ in length and have no common name.
        """
        ours, theirs = ({name: number for number, name in reversed(list(enumerate(classes.spelled)))}
                        for classes in (self, data))
        both = ours.keys() & theirs.keys()
        text = f'{self.source!r} has the classes {self}; {data.source} has {data}'
        if any(ours[name] != theirs[name] for name in both) or (self and data and not both and len(self) != len(data)):
            raise UserError(f'{text}. A class must have the same number in both: give {data.source} the order of the '
                            'other.')
        if self and data and any(map(str.__ne__, map(str, self.names), map(str, data.names))):
            print_log(f'{text}. Classes are compared by number.', logger='current', level=30)
