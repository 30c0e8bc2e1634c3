# The whole service, for development and tests; what it accepts stays in the volume:
#   docker build -t headrace-local . && docker run --rm -p 127.0.0.1:8700:8700 -v headrace:/data headrace-local
# In memory: the same without -v, and --ephemeral at the end.
FROM python:3.11-slim AS build
WORKDIR /source
COPY requirements-uv.txt uv.lock pyproject.toml ./
RUN pip install --no-cache-dir --require-hashes -r requirements-uv.txt \
    && uv export --quiet --frozen --output-file requirements.txt \
    && pip wheel --no-cache-dir --require-hashes --wheel-dir /wheels -r requirements.txt
COPY LICENSE app.py ./
COPY headrace_local headrace_local
COPY chalicelib chalicelib
COPY local local
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels headrace-local \
    && useradd --create-home headrace \
    && install -d -o headrace -m 0700 /data
USER headrace
ENV HEADRACE_HOST=0.0.0.0 HEADRACE_DATA=/data
EXPOSE 8700
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('HEADRACE_PORT') or 8700}/v1/health\")"]
ENTRYPOINT ["headrace-local"]
