// The index of a checkpoint in several files, as Hugging Face writes it ("model.safetensors.index.json"): a JSON object
// with "metadata" and "weight_map", which names for each tensor the file that it is in, a shard.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "graphsink/error.h"

namespace graphsink {

class InputFile;

struct ShardIndex {
  std::map<std::string, std::set<std::string>, std::less<>> shards{};  // names of tensors by name of their shard
  std::map<std::string, std::string, std::less<>> metadata{};          // those that are strings

  std::string text(std::size_t total_bytes) const;
};

constexpr std::string_view kTotalSize = "total_size";  // metadata: the bytes of all tensors

// Checks that the names of shards are names of files in the folder of the index, and that no tensor occurs twice.
// Ignores metadata that are numbers: some writers' "total_size" is wrong. Throws Error(file, where, ...).
ShardIndex parse_index(std::string_view text, const std::string& file, Where where);

// Text of the file if it is an index: it begins with "{" and not, like a safetensors file, with a number of 64 bits.
// The file is at its beginning afterwards, otherwise.
std::optional<std::string> index_text(InputFile& file);

// The name of one shard of the index of this name, "<index>.<digits>-00001-of-00003.safetensors". The digits are those
// of one write, so that no two indexes of the same path refer to the same shards.
std::string shard_name(const std::string& index, const std::string& digits, std::size_t number, std::size_t count);

// The digits that all shards of `index` have, if all have names that write_checkpoint() gives to shards of `path`.
std::optional<std::string> digits_of(const ShardIndex& index, const std::filesystem::path& path);
// The same for the file at `path`; none if there is no file, or it is no index. Where the file cannot be read, or is
// damaged, nobody knows which shards belong to it.
struct DigitsAt {
  bool is_known = true;
  std::optional<std::string> digits{};
};
DigitsAt digits_at(const std::filesystem::path& path);

constexpr std::size_t kDigits = 16;
bool are_digits(std::string_view text);

}  // namespace graphsink
