#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/input_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "graphsink/checkpoint.h"

namespace graphsink {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostShards = 99'999;  // numbers of five digits

std::uint64_t read_header_size(InputFile& file) {
  unsigned char bytes[8];
  if (file.size() < sizeof bytes) {
    file.refuse("header size: expected 8 bytes, the file has " + std::to_string(file.size()), kWriteAgain);
  }
  file.read(bytes, sizeof bytes);
  std::uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | bytes[i];
  if (size > kMaxHeader || size > file.size() - sizeof bytes) {
    file.refuse("header size: " + std::to_string(size) + " bytes, the file has " + std::to_string(file.size()) +
                    " and headers at most " + std::to_string(kMaxHeader),
                kWriteAgain);
  }
  return size;
}

SafetensorsHeader read_header(InputFile& file, Where where) {
  std::string json(read_header_size(file), '\0');
  file.read(json.data(), json.size());
  return parse_header(json, file.size() - 8 - json.size(), file.name(), where);
}

void read_tensors(InputFile& file, SafetensorsHeader& header, Checkpoint& checkpoint, Where where) {
  for (TensorEntry& entry : header.entries) {
    if (!entry.dtype->dtype) {
      file.skip(entry.end - entry.begin);
      checkpoint.unsupported.emplace(std::move(entry.name), entry.dtype->name);
      continue;
    }
    Tensor tensor(*entry.dtype->dtype, entry.shape, where);
    file.read(tensor.data(), tensor.bytes());
    if (const auto bad = find_bad_boolean(tensor)) {
      file.refuse(tensor_text(entry.name) + ": element " + std::to_string(*bad) + " is neither 0 nor 1", kWriteAgain);
    }
    checkpoint.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
}

Checkpoint read_file(InputFile& file, Where where) {
  SafetensorsHeader header = read_header(file, where);
  Checkpoint checkpoint;
  checkpoint.metadata = std::move(header.metadata);
  read_tensors(file, header, checkpoint, where);
  return checkpoint;
}

// A shard has the tensors that the index says, no others.
void check_names(const InputFile& shard, const SafetensorsHeader& header, std::set<std::string> expected) {
  for (const TensorEntry& entry : header.entries) {
    if (expected.erase(entry.name) == 0)
      shard.refuse(tensor_text(entry.name) + ": the index does not say that it is in this file", kWriteAgain);
  }
  if (!expected.empty())
    shard.refuse(tensor_text(*expected.begin()) + " is missing, which the index says is in this file", kWriteAgain);
}

// The folder that has the shards. Where the index is a link, that is either the folder of the link, as in the cache of
// Hugging Face, or the folder of the file that it leads to, where write_checkpoint() puts them.
fs::path directory_of_shards(const fs::path& path, const ShardIndex& index) {
  fs::path directory = path.parent_path();
  std::error_code code;
  if (index.shards.empty() || fs::exists(directory / index.shards.begin()->first, code)) return directory;
  const fs::path target = fs::canonical(path, code);
  return code ? directory : target.parent_path();
}

Checkpoint read_shards(const fs::path& path, ShardIndex index, Where where) {
  const fs::path directory = directory_of_shards(path, index);
  Checkpoint checkpoint;
  checkpoint.metadata = std::move(index.metadata);
  // One at a time, because a process may open fewer files than there may be shards.
  for (auto& [shard, tensors] : index.shards) {
    InputFile file(directory / shard, where);
    SafetensorsHeader header = read_header(file, where);
    check_names(file, header, std::move(tensors));
    read_tensors(file, header, checkpoint, where);
  }
  return checkpoint;
}

// The tensors of each file, in the order of their names.
std::vector<NamedTensors> split(const Checkpoint& checkpoint, std::size_t most_bytes) {
  std::vector<NamedTensors> files(1);
  std::size_t room = most_bytes == 0 ? std::numeric_limits<std::size_t>::max() : most_bytes;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (tensor.bytes() > room && !files.back().empty()) {
      files.emplace_back();
      room = most_bytes;
    }
    files.back().emplace(name, &tensor);
    room -= std::min(room, tensor.bytes());
  }
  return files;
}

std::vector<FileWriter::Bytes> parts_of(const FileLayout& layout) {
  std::vector<FileWriter::Bytes> parts{std::as_bytes(std::span(layout.header))};
  for (const Tensor* tensor : layout.tensors) parts.emplace_back(tensor->data(), tensor->bytes());
  return parts;
}

void check_shards(const Checkpoint& checkpoint, std::size_t files, const fs::path& path, Where where) {
  if (files > kMostShards) {
    throw Error(path.string(), where,
                "would have " + std::to_string(files) + " shards, expected at most " + std::to_string(kMostShards),
                "increase CheckpointOptions::most_bytes_per_file");
  }
  if (checkpoint.metadata.contains(kTotalSize)) {
    throw Error(path.string(), where, "metadata \"" + std::string(kTotalSize) + "\" is a field of the index of shards",
                "give it another name, or write one file");
  }
}

// The index is JSON, and names the shards, whose names begin with that of the file.
void check_file_name(const std::string& name, const fs::path& path, Where where) {
  if (is_utf8(name)) return;
  throw Error(path.string(), where, "the name of the file, \"" + shortened(name) + "\", is not UTF-8",
              "give it another name, or write one file");
}

// Throws Error for an index that read_checkpoint() would refuse.
void check_index(const std::string& text, const fs::path& path, Where where) {
  if (text.size() <= kMaxHeader) return;
  throw Error(path.string(), where,
              "its index has " + std::to_string(text.size()) + " bytes; files take " + std::to_string(kMaxHeader),
              "shorten the metadata or the names of the tensors");
}

// Writes the shards, and returns the index of them.
std::string write_shards(FileWriter& writer, const Checkpoint& checkpoint, const std::vector<NamedTensors>& files,
                         const std::vector<FileLayout>& layouts) {
  ShardIndex index{.metadata = checkpoint.metadata};
  std::size_t total = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& names = index.shards[writer.write_shard(i + 1, files.size(), parts_of(layouts[i]))];
    for (const auto& [name, tensor] : files[i]) {
      names.emplace(name);
      total += tensor->bytes();
    }
  }
  return index.text(total);
}

}  // namespace

Checkpoint read_checkpoint(const fs::path& path, Where where) {
  for (;;) {
    InputFile file(path, where);
    const std::optional<std::string> text = index_text(file);
    try {
      Checkpoint checkpoint =
          text ? read_shards(path, parse_index(*text, path.string(), where), where) : read_file(file, where);
      checkpoint.source = path.string();
      return checkpoint;
    } catch (const Error&) {
      // If a writer has replaced the index meanwhile, the shards that it named are gone.
      if (!text) throw;
      InputFile now(path, where);
      if (index_text(now) == text) throw;
    }
  }
}

Checkpoint read_checkpoint_metadata(const fs::path& path, Where where) {
  InputFile file(path, where);
  const std::optional<std::string> text = index_text(file);
  Checkpoint checkpoint;
  checkpoint.metadata = text ? parse_index(*text, path.string(), where).metadata : read_header(file, where).metadata;
  checkpoint.source = path.string();
  return checkpoint;
}

void require_writable(const fs::path& path, Where where) { FileWriter(path, where); }

void write_checkpoint(const fs::path& path, const Checkpoint& checkpoint, const CheckpointOptions& options,
                      Where where) {
  check_writable(checkpoint, path.string(), where);
  const std::vector<NamedTensors> files = split(checkpoint, options.most_bytes_per_file);
  const bool is_sharded = files.size() > 1;
  if (is_sharded) check_shards(checkpoint, files.size(), path, where);
  std::vector<FileLayout> layouts;
  for (const NamedTensors& tensors : files)
    layouts.push_back(lay_out(tensors, is_sharded ? Metadata() : checkpoint.metadata, path.string(), where));
  FileWriter writer(path, where);
  if (is_sharded) {
    check_file_name(writer.file_name(), path, where);
    const std::string index = write_shards(writer, checkpoint, files, layouts);
    check_index(index, path, where);
    writer.write(index.data(), index.size());
  } else {
    for (const FileWriter::Bytes& part : parts_of(layouts.front())) writer.write(part.data(), part.size());
  }
  writer.commit();
}

bool remove_checkpoint(const fs::path& path, Where where) { return remove_file(path, where); }

}  // namespace graphsink
