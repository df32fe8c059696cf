# docker build -t cvt_dense . && docker run -it --rm --gpus all --ipc=host -v DATA:/data cvt_dense
FROM python:3.13-slim
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /cvt_dense
COPY . .
RUN make setup && rm -rf ~/.cache/pip
ENV PATH=/cvt_dense/.venv/bin:$PATH
CMD ["bash"]
