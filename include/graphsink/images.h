// Sources of PNG and JPEG images, of folders and of tar files. They are a library of their own, graphsink::images,
// which needs libpng, libjpeg and libarchive. Images are untrusted: sizes are checked before memory is taken, and what
// is truncated, or damaged so that it shows, is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/source.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// A sample consists of an image [channels, height, width], as conv2d() takes it, and a label i32[].
struct ImageOptions {
  // Grey (1), RGB (3) or RGBA (4), into which each image is converted: transparency is dropped, grey is 0.299 red +
  // 0.587 green + 0.114 blue, and what has no alpha is opaque. 0: 1 if the first image is grey, otherwise 3.
  std::int64_t channels = 0;
  std::int64_t height = 0;  // height in pixels; 0: that of the first image
  std::int64_t width = 0;   // width in pixels; 0: likewise
  // Whether images of another size are scaled to this one, each axis for itself, by linear interpolation with a filter
  // as wide as a pixel of the result where they shrink; otherwise they are refused.
  bool is_resized = false;
  bool is_scaled = true;                             // images are f32 in [0, 1], each byte divided by 255; otherwise u8
  std::int64_t most_pixels = std::int64_t{1} << 26;  // a larger image is refused before it is decoded
  std::string image = "image";                       // name of the field of images
  std::string label = "label";                       // name of the field of labels
};

// A Source of images that lie in a folder for each class.
class ImageFolderSource : public Source {
 public:
  // Names of the folders, sorted by their bytes: the label of an image is the place of its class. Valid while *this
  // lives.
  const std::vector<std::string>& classes() const noexcept { return classes_; }

 protected:
  // Parameters as those of Source, and what classes() returns.
  ImageFolderSource(std::int64_t size, std::vector<Field> fields, std::vector<std::string> classes, Where where)
      : Source(size, std::move(fields), where), classes_(std::move(classes)) {}

 private:
  std::vector<std::string> classes_;
};

// The images folder/CLASS/*.png, *.jpg and *.jpeg, in letters of any case, sorted by class and name; other files, and
// what begins with a dot, are passed over. The list is made once: read() throws Error naming a file that has gone, was
// changed since, or holds no whole image of the size. A palette, 16 bits and interlacing of PNG, and progressive JPEG
// are decoded; a PNG image that states its gamma is converted to that of sRGB; JPEG with four components is refused,
// and neither an ICC profile nor an orientation that a camera noted is applied. PNG has checksums; JPEG has none, so
// that damage which leaves something to decode is not seen. Throws Error for a folder that has no class folders or no
// images, and for options out of their ranges.
std::shared_ptr<const ImageFolderSource> image_folder_source(const std::filesystem::path& folder,
                                                             const ImageOptions& options = {},
                                                             Where where = Where::current());

// The samples of uncompressed tar files, as WebDataset has them, shard by shard. Files of a shard that have the same
// name up to the first dot behind the last slash are one sample: KEY.png, .jpg or .jpeg, and KEY.cls, a number in
// decimal digits. Other files are passed over. Each shard is indexed once, and then read at any place; an image is
// decoded as by image_folder_source(). Throws Error naming the shard, and the file in it, for one that is compressed,
// damaged or truncated, for a file of a sample that is a link, and for a sample without an image or a number, or with
// two; read() for a shard that has gone or was changed since, and for an image that is refused.
std::shared_ptr<const Source> tar_source(const std::vector<std::filesystem::path>& shards,
                                         const ImageOptions& options = {}, Where where = Where::current());

}  // namespace graphsink
