// The files of a training in which each rank saves a state of its own.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "graphsink/checkpoint.h"
#include "graphsink/ranks.h"
#include "ranks/rank_group.h"

namespace graphsink {
namespace {

namespace fs = std::filesystem;

std::string folder_of(int rank, int ranks) { return "rank" + std::to_string(rank) + "-of-" + std::to_string(ranks); }

// The number behind "rank0-of-" in the name of a folder; 0 for folders of other names.
int ranks_of(const std::string& name) {
  const std::string_view first = "rank0-of-";
  int ranks = 0;
  if (!name.starts_with(first)) return 0;
  const auto [end, failure] = std::from_chars(name.data() + first.size(), name.data() + name.size(), ranks);
  return failure == std::errc() && end == name.data() + name.size() && ranks > 0 ? ranks : 0;
}

[[noreturn]] void fail_to_read(const fs::path& folder, const std::error_code& code, const Where& where) {
  throw Error(folder.string(), where, "the folder cannot be read: " + code.message(), "check its permissions",
              ErrorCode::io);
}

// Names of train()'s files, which are ordered as their steps are.
std::set<std::string> files_in(const fs::path& folder, const Where& where) {
  const std::string_view pattern = "step-000000000000.safetensors";
  std::set<std::string> names;
  std::error_code code;
  if (!fs::exists(folder, code) && !code) return names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    if (name.size() == pattern.size() && name.starts_with("step-") && name.ends_with(".safetensors"))
      names.insert(name);
  }
  if (code) fail_to_read(folder, code, where);
  return names;
}

// The newest file that all of so many ranks have; empty if there is none. Notes in `seen` whether one of them has
// files.
std::string newest_of_all(const fs::path& folder, int ranks, bool& seen, const Where& where) {
  std::set<std::string> common = files_in(folder / folder_of(0, ranks), where);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::set<std::string> names = files_in(folder / folder_of(rank, ranks), where);
    seen |= !names.empty();
    std::erase_if(common, [&](const std::string& name) { return !names.contains(name); });
  }
  return common.empty() ? "" : *common.rbegin();
}

std::vector<Checkpoint> read_all(const std::vector<fs::path>& files, const Where& where) {
  std::vector<Checkpoint> all;
  for (const fs::path& file : files) all.push_back(read_checkpoint(file, where));
  return all;
}

// Leaves `newest` as the newest file of this rank's folder `mine`.
void prepare(const fs::path& mine, const std::vector<fs::path>& newest, std::span<const Variable> variables,
             const Where& where) {
  std::error_code code;
  fs::create_directories(mine, code);
  if (code)
    throw Error(mine.string(), where, "the folder cannot be made: " + code.message(),
                "check the permissions of what it lies in", ErrorCode::io);
  const std::string name = newest.empty() ? "" : newest[0].filename().string();
  for (const std::string& file : files_in(mine, where))
    if (file > name) remove_checkpoint(mine / file, where);
  if (newest.empty()) return;
  const fs::path file = mine / name;
  // A file that cannot be read has to be found here: train() would go on from an older one, and the others would not.
  if (std::find(newest.begin(), newest.end(), file) != newest.end()) return (void)read_checkpoint(file, where);
  write_checkpoint(file, reshard(read_all(newest, where), variables, where), {}, where);
}

}  // namespace

std::vector<fs::path> newest_sharded_checkpoint(const fs::path& folder, Where where) {
  std::vector<fs::path> newest;
  bool seen = false;
  std::error_code code;
  std::set<int> numbers;
  if (!fs::exists(folder, code) && !code) return newest;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code))
    if (const int ranks = ranks_of(entry.path().filename().string())) numbers.insert(ranks);
  if (code) fail_to_read(folder, code, where);
  std::string best;
  for (const int ranks : numbers) {
    const std::string name = newest_of_all(folder, ranks, seen, where);
    if (name <= best) continue;
    best = name;
    newest.clear();
    for (int rank = 0; rank < ranks; ++rank) newest.push_back(folder / folder_of(rank, ranks) / name);
  }
  if (newest.empty() && seen)
    throw Error(folder.string(), where, "holds files of ranks, and none is of a step that all of them saved",
                "set SaveOptions::in_background to false, or keep more files (keep_newest), so that there is one; to "
                "begin anew, choose another folder",
                ErrorCode::io);
  return newest;
}

fs::path shard_folder(const fs::path& folder, const Comm& comm, std::span<const Variable> variables, Where where) {
  const Exchange exchange{"shard_folder", where};
  std::string told;
  std::vector<fs::path> newest;
  // A failure of one rank is told to the others, which would wait for it else.
  const auto agree = [&](const auto& work) {
    told.clear();
    try {
      work();
    } catch (const Error& e) {
      told = "\n" + e.op() + ": " + e.problem();
      (void)comm.group()->all_texts(told, exchange);
      throw;
    }
    const std::vector<std::string> all = comm.group()->all_texts(told, exchange);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].starts_with('\n'))
        throw Error("shard_folder", where, "failed on rank " + std::to_string(rank) + ": " + all[rank].substr(1),
                    "mend it there, and start all ranks again", ErrorCode::io);
      if (all[rank] != told)
        throw Error("shard_folder", where,
                    "this rank would go on from \"" + told + "\", and rank " + std::to_string(rank) + " from \"" +
                        all[rank] + "\"",
                    "give a folder that all machines share", ErrorCode::io);
    }
  };
  agree([&] {
    newest = newest_sharded_checkpoint(folder, where);
    if (!newest.empty()) told = (newest[0].parent_path().filename() / newest[0].filename()).string();
  });
  const fs::path mine = folder / folder_of(comm.rank(), comm.size());
  agree([&] { prepare(mine, newest, variables, where); });
  return mine;
}

}  // namespace graphsink
