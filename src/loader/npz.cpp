#include <algorithm>

#include "base/printable.h"
#include "graphsink/source.h"
#include "loader/npy.h"
#include "loader/zip.h"

namespace graphsink {
namespace {

constexpr std::string_view kEnding = ".npy";

// The members to read, in the order of the fields.
std::vector<ZipMember> chosen(std::vector<ZipMember> members, const std::vector<std::string>& names,
                              const Origin& origin) {
  if (names.empty()) return members;
  std::vector<ZipMember> found;
  for (const std::string& name : names) {
    auto is_it = [&](const ZipMember& member) { return member.name == name + std::string(kEnding); };
    const auto member = std::find_if(members.begin(), members.end(), is_it);
    if (member == members.end()) {
      std::string there;
      for (const ZipMember& other : members) there += (there.empty() ? "" : ", ") + shortened(other.name);
      origin.refuse(
          "has no array \"" + shortened(name) + "\", only " + (there.empty() ? "none" : shortened(there, 300)),
          "name arrays that it has");
    }
    found.push_back(*member);
  }
  return found;
}

}  // namespace

std::shared_ptr<const Source> npz_source(const std::filesystem::path& path, const NpzSourceOptions& options,
                                         Where where) {
  const auto file = std::make_shared<DataFile>(path, where);
  std::vector<std::pair<std::string, NpyArray>> arrays;
  std::uint64_t left = options.most_unpacked;
  for (const ZipMember& member : chosen(read_zip_directory(*file), options.names, file->origin())) {
    Origin origin = file->origin();
    origin.member = member.name;
    if (!member.name.ends_with(kEnding)) {
      origin.refuse("is no .npy file", "name the arrays to read (NpzSourceOptions::names), or leave the others out");
    }
    ByteRange bytes = member.open(file, left);
    if (member.is_compressed) left -= bytes.size();
    arrays.emplace_back(member.name.substr(0, member.name.size() - kEnding.size()), NpyArray(std::move(bytes)));
  }
  if (arrays.empty()) file->origin().refuse("is empty: expected at least one array", "save arrays with numpy.savez()");
  return array_source(std::move(arrays), where);
}

}  // namespace graphsink
