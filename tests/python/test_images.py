"""Sources of images in folders and in tar files."""
from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

import graphsink as gs
from image_files import image, png_file, write_folder


def has_images() -> bool:
    """Whether this build of the package reads images."""
    try:
        gs.tar_source([])
    except gs.Error as error:
        return error.code != gs.ErrorCode.unavailable
    return True


needs_images = pytest.mark.skipif(not has_images(), reason="a build without libpng, libjpeg and libarchive")


def planes(pixels: np.ndarray) -> np.ndarray:
    """[channels, height, width] f32 in [0, 1] of u8 [height, width, channels]."""
    return pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(255)


def write_tar(path, files: dict[str, bytes]):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.skipif(has_images(), reason="this build reads images")
def test_without_their_libraries_an_error_names_the_packages(tmp_path):
    for call in (lambda: gs.image_folder_source(tmp_path), lambda: gs.tar_source([tmp_path / "x.tar"])):
        with pytest.raises(gs.Error, match="libpng, libjpeg and libarchive") as caught:
            call()
        assert caught.value.code == gs.ErrorCode.unavailable and caught.value.file == __file__


@needs_images
def test_a_folder_of_classes(tmp_path):
    samples = write_folder(tmp_path, {"b": 2, "a": 3, "B": 1})
    (tmp_path / "a" / "notes.txt").write_text("passed over")
    source = gs.image_folder_source(tmp_path)
    assert isinstance(source, gs.Source) and isinstance(source, gs.ImageFolderSource)
    assert source.classes == ["B", "a", "b"] and len(source) == 6
    assert source.fields == {"image": (np.float32, (3, 4, 4)), "label": (np.int32, ())}
    for i, (pixels, label) in enumerate(samples):
        read = source.read(i)
        assert np.array_equal(read["image"], planes(pixels)) and read["label"] == label


@needs_images
def test_options(tmp_path):
    write_folder(tmp_path, {"a": 1})
    read = gs.image_folder_source(str(tmp_path), channels=1, height=2, width=8, is_resized=True, is_scaled=False, image="x", label="t").read(0)
    assert read["x"].dtype == np.uint8 and read["x"].shape == (1, 2, 8) and read["t"] == 0
    with pytest.raises(gs.Error, match="00.png") as caught:
        gs.image_folder_source(tmp_path, height=2, width=8).read(0)
    assert "is_resized" in caught.value.remedy and "ImageOptions" not in str(caught.value), "the name of the keyword"
    with pytest.raises(gs.Error, match="channels"):
        gs.image_folder_source(tmp_path, channels=2)
    with pytest.raises(gs.Error, match="00.png"):
        gs.image_folder_source(tmp_path, most_pixels=15)
    with pytest.raises(TypeError):
        gs.image_folder_source(tmp_path, 3)


@needs_images
def test_names_that_are_no_text(tmp_path):
    folder = str(tmp_path / "\udcff")
    write_folder(tmp_path, {"\udcff": 1})
    assert gs.image_folder_source(tmp_path).classes == ["\udcff"]
    with pytest.raises(gs.Error):
        gs.image_folder_source(folder)


@needs_images
def test_refused_files_are_named(tmp_path):
    with pytest.raises(gs.Error, match="nowhere") as caught:
        gs.image_folder_source(tmp_path / "nowhere")
    assert caught.value.code == gs.ErrorCode.io and caught.value.file == __file__
    with pytest.raises(gs.Error, match="expected a folder for each class"):
        gs.image_folder_source(tmp_path)
    write_folder(tmp_path, {"a": 3})
    source = gs.image_folder_source(tmp_path)
    (tmp_path / "a" / "01.png").unlink()
    (tmp_path / "a" / "02.png").write_bytes(png_file(image(2))[:-20])
    for i in (1, 2):
        with pytest.raises(gs.Error, match=f"0{i}.png") as caught:
            source.read(i)
        assert caught.value.code == gs.ErrorCode.io
    with pytest.raises(gs.Error, match="02.png"):
        gs.image_folder_source(tmp_path).read(1)


@needs_images
def test_shards(tmp_path):
    shards = []
    for n in range(2):
        files = {}
        for i in range(3):
            files[f"{n}{i}.png"] = png_file(image(3 * n + i))
            files[f"{n}{i}.cls"] = str(10 * n + i).encode()
        shards.append(write_tar(tmp_path / f"{n}.tar", files))
    source = gs.tar_source(shards)
    assert len(source) == 6 and not isinstance(source, gs.ImageFolderSource)
    for i in range(6):
        read = source.read(i)
        assert np.array_equal(read["image"], planes(image(i))) and read["label"] == 10 * (i // 3) + i % 3
    assert len(gs.tar_source((str(shards[0]),), channels=1, is_scaled=False)) == 3
    broken = write_tar(tmp_path / "broken.tar", {"k.png": png_file(image(0)), "k.txt": b""})
    with pytest.raises(gs.Error, match="broken.tar.*k") as caught:
        gs.tar_source([shards[0], broken])
    assert caught.value.code == gs.ErrorCode.io and caught.value.file == __file__
    with pytest.raises(gs.Error, match="at least 1 shard"):
        gs.tar_source([])
    with pytest.raises(TypeError):
        gs.tar_source(str(shards[0]))


def classifier(device):
    """A linear classifier of 4 x 4 images in 2 classes."""
    g = gs.Graph()
    x, t = g.feed("image", gs.f32, (4, 3, 4, 4)), g.feed("label", gs.i32, (4,))
    w = gs.Variable("w", gs.zeros((48, 2)))
    loss = gs.cross_entropy(gs.reshape(x, (4, 48)) @ w, t)
    gs.sgd(loss, [w], lr=0.1)
    g.record("loss", loss)
    return gs.compile(g, device)


@needs_images
def test_a_loader_trains_on_images(device, tmp_path):
    samples = write_folder(tmp_path / "images", {"a": 6, "b": 6})
    shard = write_tar(tmp_path / "all.tar", {f"{i:02}{ending}": data for i, (pixels, label) in enumerate(samples)
                                             for ending, data in ((".png", png_file(pixels)), (".cls", str(label).encode()))})
    arrays = {"image": np.stack([planes(pixels) for pixels, _ in samples]), "label": np.array([label for _, label in samples], np.int32)}
    losses = []
    for source in (gs.image_folder_source(tmp_path / "images"), gs.tar_source([shard]), arrays):
        program = classifier(device)
        with gs.Loader(program, source, gs.sample_order(12, batch=4, seed=1), workers=2) as loader:
            result = gs.train(program, loader, steps=9, steps_per_launch=3, progress=False)
        assert result.steps == 9
        losses.append(program.records("loss").tolist())
    assert losses[0] == losses[1] == losses[2] and losses[0][-1] < losses[0][0]


@needs_images
def test_a_damaged_image_ends_the_training_with_its_name(device, tmp_path):
    write_folder(tmp_path, {"a": 6, "b": 6})
    source = gs.image_folder_source(tmp_path)
    (tmp_path / "b" / "03.png").write_bytes(b"no image")
    program = classifier(device)
    with gs.Loader(program, source, gs.sample_order(12, batch=4, is_shuffled=False)) as loader:
        with pytest.raises(gs.Error, match="03.png"):
            gs.train(program, loader, epochs=1, progress=False)
