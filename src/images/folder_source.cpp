#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/absolute_path.h"
#include "graphsink/images.h"
#include "images/image_reader.h"

namespace graphsink {
namespace {

struct FolderImage {
  std::filesystem::path path;
  FileStamp stamp;  // when the list was made
  std::int32_t label = 0;
};

class FolderSource : public ImageFolderSource {
 public:
  FolderSource(std::vector<FolderImage> images, ImageReader reader, std::vector<std::string> classes, Where where)
      : ImageFolderSource(static_cast<std::int64_t>(images.size()), reader.fields(), std::move(classes), where),
        images_(std::move(images)),
        reader_(std::move(reader)),
        where_(where) {}

 private:
  void fill(std::int64_t index, SampleMemory to) const override {
    const FolderImage& image = images_[static_cast<std::size_t>(index)];
    const DataFile file(image.path, image.stamp, where_);
    reader_.read(read_image_file(file, 0, file.size(), file.origin()), file.origin(), to[0]);
    std::memcpy(to[1].data(), &image.label, sizeof image.label);
  }

  std::vector<FolderImage> images_;
  ImageReader reader_;
  Where where_;
};

// Names in a folder, sorted, without those that begin with a dot.
template <class Wanted>
std::vector<std::string> names_in(const std::filesystem::path& folder, Where where, const Wanted& wanted) {
  std::vector<std::string> names;
  std::error_code code;
  for (std::filesystem::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && wanted(*entry)) names.push_back(std::move(name));
  }
  if (code) {
    Origin{folder.string(), where}.refuse("cannot read the folder: " + code.message(),
                                          "check the path and its permissions");
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<FolderImage> find_images(const std::filesystem::path& folder, const std::vector<std::string>& classes,
                                     Where where) {
  auto is_image = [](const std::filesystem::directory_entry& entry) {
    const std::string extension = entry.path().extension().string();
    std::error_code ignored;
    return !extension.empty() && is_image_extension(extension.substr(1)) && !entry.is_directory(ignored);
  };
  std::vector<FolderImage> images;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const std::filesystem::path of_class = folder / classes[label];
    for (const std::string& name : names_in(of_class, where, is_image)) {
      const std::filesystem::path path = of_class / name;
      images.push_back({absolute_path(path), DataFile(path, where).stamp(), static_cast<std::int32_t>(label)});
    }
  }
  return images;
}

}  // namespace

std::shared_ptr<const ImageFolderSource> image_folder_source(const std::filesystem::path& folder,
                                                             const ImageOptions& options, Where where) {
  ImageReader reader("image_folder_source", options, where);
  const Origin origin{folder.string(), where};
  constexpr const char* kLayout = "put the images into FOLDER/CLASS/NAME.png or .jpg, and give FOLDER";
  std::vector<std::string> classes = names_in(folder, where, [](const std::filesystem::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored);
  });
  if (classes.empty()) origin.refuse("expected a folder for each class, seen none", kLayout);
  std::vector<FolderImage> images = find_images(folder, classes, where);
  if (images.empty()) {
    origin.refuse("expected images in its " + std::to_string(classes.size()) + " folders, seen none", kLayout);
  }
  if (reader.needs_first()) {
    const DataFile file(images[0].path, images[0].stamp, where);
    reader.set_first(read_image_file(file, 0, file.size(), file.origin()), file.origin());
  }
  return std::make_shared<FolderSource>(std::move(images), std::move(reader), std::move(classes), where);
}

}  // namespace graphsink
