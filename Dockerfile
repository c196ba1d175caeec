# One image for every role of a run. The build's own pip settings decide where packages come from:
#   docker build --build-arg TORCH_INDEX=URL .      a further index, e.g. PyTorch's of CPU wheels
FROM python:3.11-slim-bookworm
ARG TORCH_INDEX=
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY schemas schemas
COPY bus bus
COPY relay relay
COPY policy policy
COPY environments environments
COPY workers workers
COPY validator validator
COPY trainer trainer
COPY cli cli
COPY configs configs
RUN python -m venv /opt/cairn \
 && /opt/cairn/bin/pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url $TORCH_INDEX} -c constraints.txt . \
 && useradd --create-home cairn && mkdir -p /data && chown cairn /data
ENV PATH=/opt/cairn/bin:$PATH PYTHONUNBUFFERED=1
USER cairn
ENTRYPOINT ["cairn"]
