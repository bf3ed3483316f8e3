// Sources of images. A build without the libraries that they need has the same functions, which say so.
#include "graphsink/images.h"

#include <utility>

#include "bindings.h"
#include "garbage.h"
#include "samples.h"

namespace graphsink::python {

namespace {

// A source of a folder, and the names of its classes.
struct ImageFolderHandle : SourceHandle {
  nb::object classes;
};

#ifdef GRAPHSINK_IMAGES
nb::object names_object(const std::vector<std::string>& names) {
  nb::list all;
  for (const std::string& name : names) all.append(path_object(name));
  return all;
}

ImageFolderHandle folder_handle(const FilePath& folder, const ImageOptions& options) {
  const Where where = here();
  std::shared_ptr<const ImageFolderSource> source;
  {
    WithoutGil others_run;
    source = image_folder_source(folder.path, options, where);
  }
  return {{source, {}}, names_object(source->classes())};
}

SourceHandle tar_handle(const std::vector<FilePath>& shards, const ImageOptions& options) {
  const Where where = here();
  std::vector<std::filesystem::path> paths;
  for (const FilePath& shard : shards) paths.push_back(shard.path);
  WithoutGil others_run;
  return {tar_source(paths, options, where), {}};
}
#else
[[noreturn]] void refuse(const char* op) {
  throw Error(op, here(), "this build of the package reads no images, because libraries were missing when it was built",
              "install libpng, libjpeg and libarchive (on Debian: apt-get install libpng-dev libjpeg62-turbo-dev "
              "libarchive-dev) and build the package again: pip install --force-reinstall .",
              ErrorCode::unavailable);
}
ImageFolderHandle folder_handle(const FilePath&, const ImageOptions&) { refuse("image_folder_source"); }
SourceHandle tar_handle(const std::vector<FilePath>&, const ImageOptions&) { refuse("tar_source"); }
#endif

// Adds a function of `First`, an argument called `name`, and of the options: open(First, ImageOptions) makes the
// source.
template <class First, class Open>
void def_source(nb::module_& m, const char* function, const char* name, Open open, const char* text) {
  const ImageOptions defaults;
  m.def(
      function,
      [open](const First& first, std::int64_t channels, std::int64_t height, std::int64_t width, bool is_resized,
             bool is_scaled, std::int64_t most_pixels, const std::string& image, const std::string& label) {
        return open(first, ImageOptions{channels, height, width, is_resized, is_scaled, most_pixels, image, label});
      },
      nb::arg(name), nb::kw_only(), nb::arg("channels") = defaults.channels, nb::arg("height") = defaults.height,
      nb::arg("width") = defaults.width, nb::arg("is_resized") = defaults.is_resized,
      nb::arg("is_scaled") = defaults.is_scaled, nb::arg("most_pixels") = defaults.most_pixels,
      nb::arg("image") = defaults.image, nb::arg("label") = defaults.label, text);
}

}  // namespace

void bind_images(nb::module_& m) {
  nb::class_<ImageFolderHandle, SourceHandle>(m, "ImageFolderSource",
                                              "A Source of images that lie in a folder for each class.",
                                              nb::type_slots(OwnedObjects<ImageFolderHandle>::slots))
      .def_prop_ro(
          "classes", [](const ImageFolderHandle& self) { return nb::list(self.classes); },
          nb::sig("def classes(self) -> list[str]"),
          "Names of the folders, sorted by their bytes: the label of an image is the place of its class.");
  def_source<FilePath>(
      m, "image_folder_source", "folder", folder_handle,
      "The images folder/CLASS/*.png, *.jpg and *.jpeg, sorted by class and name. A sample is an image [channels, "
      "height, width] and a label i32[]. The list of files is made once: read() raises Error naming a file that has "
      "gone, was changed since, or holds no whole image of the size.\n\nchannels: 1, 3 or 4, into which each image is "
      "converted; 0: 1 if the first image is grey, otherwise 3. height, width: 0 for those of the first image. "
      "is_resized: images of another size are scaled to this one; otherwise they are refused. is_scaled: images are "
      "f32 in [0, 1]; otherwise u8. most_pixels: a larger image is refused before it is decoded. image, label: names "
      "of the two fields. Raises Error for a folder without class folders or images, and with ErrorCode.unavailable in "
      "a build without libpng, libjpeg and libarchive.");
  def_source<std::vector<FilePath>>(
      m, "tar_source", "shards", tar_handle,
      "The samples of uncompressed tar files, as WebDataset has them, shard by shard: KEY.png, .jpg or .jpeg, and "
      "KEY.cls, a number in decimal digits; other files are passed over. Each shard is indexed once. The options, and "
      "what raises Error, are those of image_folder_source(); Error names the shard and the file in it, also for a "
      "shard that is compressed, damaged or truncated, and for a sample without an image or a number, or with two.");
}

}  // namespace graphsink::python
