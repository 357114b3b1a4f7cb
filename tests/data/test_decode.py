from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ccr.data.datasets import BadImage, content_hash, decode, load_image
from tests.data.helpers import bomb_png, encoded, picture

RED = (255, 0, 0)


def first_pixel(content, **options):
    image = decode(content, **options)
    assert image.mode == "RGB"
    return image.getpixel((0, 0))


def test_rgb_is_lossless():
    image = picture(1)
    assert np.array_equal(np.asarray(decode(encoded(image))), np.asarray(image))


@pytest.mark.parametrize(
    ("image", "form", "expected"),
    [
        (Image.new("L", (4, 4), 77), "PNG", (77, 77, 77)),
        (Image.new("1", (4, 4), 1), "PNG", (255, 255, 255)),
        (Image.new("RGBA", (4, 4), (0, 0, 255, 0)), "PNG", (255, 255, 255)),
        (Image.new("RGBA", (4, 4), (0, 0, 255, 255)), "PNG", (0, 0, 255)),
        (Image.new("LA", (4, 4), (9, 0)), "PNG", (255, 255, 255)),
        (Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "TIFF", RED),
        (Image.fromarray(np.full((4, 4), 65535, np.uint16)), "PNG", (255, 255, 255)),
        (Image.fromarray(np.full((4, 4), 257 * 40, np.uint16)), "PNG", (40, 40, 40)),
        (Image.fromarray(np.full((4, 4), 0.2, np.float32)), "TIFF", (51, 51, 51)),
    ],
    ids=["grey", "one bit", "transparent", "opaque", "grey and alpha", "cmyk", "16 bit", "16 bit dark", "float"],
)
def test_every_mode_becomes_8_bit_rgb(image, form, expected):
    assert first_pixel(encoded(image, form)) == expected


def test_cmyk_jpeg_is_read():
    pixel = first_pixel(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95))
    assert pixel[0] > 200
    assert max(pixel[1:]) < 60


def test_palette_with_transparency_goes_onto_white():
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert first_pixel(encoded(image)) == RED
    assert first_pixel(encoded(image, transparency=1)) == (255, 255, 255)


def test_a_gif_gives_its_first_frame():
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, (0, 255, 0))]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert first_pixel(content) == RED


def test_exif_rotation_is_applied_and_damaged_exif_ignored():
    image = Image.new("RGB", (6, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(encoded(image, "JPEG", exif=exif)).size == (4, 6)
    assert decode(encoded(image, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")).size == (6, 4)


def test_a_truncated_file_is_a_bad_image():
    content = encoded(picture(2, (64, 64)), "JPEG")
    with pytest.raises(BadImage, match="truncated"):
        decode(content[: len(content) // 2])


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty"), (b"<b>not an image</b>", "not an image")])
def test_other_files_are_bad_images(content, reason):
    with pytest.raises(BadImage, match=reason):
        decode(content)


def test_a_bomb_is_refused_before_it_is_unpacked():
    with pytest.raises(BadImage, match=r"more than the limit.*max_pixels"):
        decode(bomb_png())
    with pytest.raises(BadImage, match=r"10000 x 10000 pixels, more than the limit of 89,478,485"):
        decode(bomb_png(10_000, 10_000))


def test_the_limit_can_be_set():
    content = encoded(picture(1, (30, 30)))
    assert decode(content, max_pixels=900).size == (30, 30)
    with pytest.raises(BadImage, match="limit of 899"):
        decode(content, max_pixels=899)


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1), (5, 4, 3), (5, 4, 4)])
def test_arrays_are_images(shape):
    assert decode(np.full(shape, 255, np.uint8)).size == (4, 5)


@pytest.mark.parametrize("pixels", [np.zeros((5, 4), np.float32), np.zeros((5, 4, 2), np.uint8), np.zeros(3, np.uint8)])
def test_other_arrays_are_bad_images(pixels):
    with pytest.raises(BadImage):
        decode(pixels)


@given(st.binary(max_size=300))
def test_any_bytes_give_an_image_or_a_bad_image(content):
    for head in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\0\0\0\0WEBP", b"II*\0"):
        with suppress(BadImage):
            assert decode(head + content).mode == "RGB"


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_jpeg_gives_an_image_or_a_bad_image(place, value):
    content = bytearray(encoded(picture(3, (16, 16)), "JPEG"))
    content[place % len(content)] = value
    with suppress(BadImage):
        assert decode(bytes(content)).mode == "RGB"


def test_content_hashes_tell_contents_apart():
    assert content_hash(b"a") == content_hash(b"a") != content_hash(b"b")
    pixels = np.arange(12, dtype=np.uint8)
    assert content_hash(pixels.reshape(3, 4)) != content_hash(pixels.reshape(4, 3))


def test_load_image_names_the_file(tmp_path):
    file = tmp_path / "<b>.jpg"
    with pytest.raises(BadImage, match=r"<b>\.jpg cannot be read as an image: there is no such file"):
        load_image(file)
    file.write_bytes(encoded(picture(1)))
    assert load_image(file).size == (24, 20)
    with pytest.raises(BadImage, match="is a folder, not an image"):
        load_image(tmp_path)


@pytest.mark.parametrize("size", [(1, 1001), (3003, 3)])
def test_threads_of_pixels_are_refused(size):
    # An encoder makes the short side 224 pixels long: the picture would have a hundred megapixels and more.
    for content in (encoded(Image.new("RGB", size)), np.zeros((size[1], size[0], 3), np.uint8)):
        with pytest.raises(BadImage, match=f"{size[0]} x {size[1]} pixels, more than the limit of 1,000 times"):
            decode(content)
    assert decode(encoded(Image.new("RGB", (1, 1000)))).size == (1, 1000)
