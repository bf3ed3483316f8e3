// The files of a training in which each rank saves a state of its own.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "graphsink/checkpoint.h"
#include "graphsink/ranks.h"
#include "ranks/rank_group.h"

namespace graphsink {
namespace {

namespace fs = std::filesystem;

std::string folder_of(int rank, int ranks) { return "rank" + std::to_string(rank) + "-of-" + std::to_string(ranks); }

// The number of ranks in the name of a folder, such as "rank1-of-4"; 0 for folders of other names.
int ranks_of(const std::string& name) {
  const std::size_t place = name.rfind('-');
  int ranks = 0, rank = 0;
  if (place == std::string::npos) return 0;
  const auto [end, failure] = std::from_chars(name.data() + place + 1, name.data() + name.size(), ranks);
  if (failure != std::errc() || end != name.data() + name.size() || ranks < 1 || !name.starts_with("rank")) return 0;
  (void)std::from_chars(name.data() + 4, name.data() + name.size(), rank);
  return rank >= 0 && rank < ranks && name == folder_of(rank, ranks) ? ranks : 0;
}

[[noreturn]] void fail_to_read(const fs::path& folder, const std::error_code& code, const Where& where) {
  throw Error(folder.string(), where, "the folder cannot be read: " + code.message(), "check its permissions",
              ErrorCode::io);
}

// The names of all that is in a folder; none if it is not there.
std::vector<std::string> names_in(const fs::path& folder, const Where& where) {
  std::vector<std::string> names;
  std::error_code code;
  if (!fs::exists(folder, code) && !code) return names;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
    names.push_back(entry->path().filename().string());
  if (code) fail_to_read(folder, code, where);
  return names;
}

// Names of train()'s files, which are ordered as their steps are.
std::set<std::string> files_in(const fs::path& folder, const Where& where) {
  const std::string_view first = "step-", last = ".safetensors";
  std::set<std::string> names;
  for (const std::string& name : names_in(folder, where)) {
    if (name.size() != first.size() + 12 + last.size() || !name.starts_with(first) || !name.ends_with(last)) continue;
    const std::string_view digits = std::string_view(name).substr(first.size(), 12);
    if (digits.find_first_not_of("0123456789") == std::string_view::npos) names.insert(name);
  }
  return names;
}

// The newest file that all of so many ranks have; empty if there is none. Sets `lost` where there are files, and not
// just those of a first save that a kill interrupted: files of one step, and the empty folder of a rank that has none
// yet.
std::string newest_of_all(const fs::path& folder, int ranks, bool& lost, const Where& where) {
  std::set<std::string> all, common = files_in(folder / folder_of(0, ranks), where);
  bool begins = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const fs::path its_folder = folder / folder_of(rank, ranks);
    const std::set<std::string> names = files_in(its_folder, where);
    std::error_code code;
    begins |= names.empty() && fs::is_directory(its_folder, code);
    all.insert(names.begin(), names.end());
    std::erase_if(common, [&](const std::string& name) { return !names.contains(name); });
  }
  if (!common.empty()) return *common.rbegin();
  lost |= all.size() > 1 || (all.size() == 1 && !begins);
  return "";
}

// Without the tensors that are the same in the first one: parameters would take memory for each of the ranks.
std::vector<Checkpoint> read_all(const std::vector<fs::path>& files, const Where& where) {
  std::vector<Checkpoint> all;
  for (const fs::path& file : files) {
    Checkpoint checkpoint = read_checkpoint(file, where);
    if (!all.empty())
      std::erase_if(checkpoint.tensors, [&](const auto& entry) {
        const auto& [name, tensor] = entry;
        const auto same = all[0].tensors.find(name);
        return same != all[0].tensors.end() && same->second.type() == tensor.type() &&
               std::memcmp(same->second.data(), tensor.data(), tensor.bytes()) == 0;
      });
    all.push_back(std::move(checkpoint));
  }
  return all;
}

// "w.adamw.m" for that of a part or shard of it, such as "w.part3.adamw.m"; else the name itself.
std::string whole_of(const std::string& name) {
  static const std::regex part(R"(\.(part|shard)[0-9]+(?=\.|$))");
  return std::regex_replace(name, part, "");
}

// The file of this rank, saved by as many ranks, has other parts than the Variables where those were grids of other
// sides.
void expect_same_parts(const Checkpoint& checkpoint, const fs::path& file, std::span<const Variable> variables,
                       const Where& where) {
  std::map<std::string, std::string> by_whole;
  std::set<std::string> names;
  for (const Variable& variable : variables) {
    names.insert(variable.name());
    by_whole.emplace(whole_of(variable.name()), variable.name());
  }
  for (const auto& [name, tensor] : checkpoint.tensors) {
    const auto mine = by_whole.find(whole_of(name));
    if (names.contains(name) || mine == by_whole.end()) continue;
    throw Error(file.string(), where,
                "has \"" + name + "\", and this rank has \"" + mine->second +
                    "\": as many ranks have saved it, which were divided into other groups",
                "divide the ranks as they were then; or give another folder, read the files that "
                "newest_sharded_checkpoint() names, and restore() what reshard() makes of them",
                ErrorCode::io);
  }
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
  for (const std::string& file : files_in(mine, where)) {
    if (file <= name) continue;
    if (newest.empty())
      Log().warn(
          {"shard_folder: begins anew, and removes ", (mine / file).string(), ": not all ranks have saved that step"});
    remove_checkpoint(mine / file, where);
  }
  if (newest.empty()) return;
  const fs::path file = mine / name;
  // A file that cannot be read has to be found here: train() would go on from an older one, and the others would not.
  if (std::find(newest.begin(), newest.end(), file) != newest.end())
    return expect_same_parts(read_checkpoint(file, where), file, variables, where);
  Checkpoint made = reshard(read_all(newest, where), variables, where);
  made.metadata.erase("loader.samples");  // by which train() knows the order of the rank that saved it
  write_checkpoint(file, made, {}, where);
}

}  // namespace

std::vector<fs::path> newest_sharded_checkpoint(const fs::path& folder, Where where) {
  std::vector<fs::path> newest;
  bool lost = false;
  std::set<int> numbers;
  for (const std::string& name : names_in(folder, where))
    if (const int ranks = ranks_of(name)) numbers.insert(ranks);
  // One process, or ranks that divide nothing, save in the folder itself.
  std::string best;
  if (const std::set<std::string> undivided = files_in(folder, where); !undivided.empty()) {
    best = *undivided.rbegin();
    newest = {folder / best};
  }
  for (const int ranks : numbers) {
    const std::string name = newest_of_all(folder, ranks, lost, where);
    if (name <= best) continue;
    best = name;
    newest.clear();
    for (int rank = 0; rank < ranks; ++rank) newest.push_back(folder / folder_of(rank, ranks) / name);
  }
  if (newest.empty() && lost)
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
      (void)comm.group()->all_texts("\n" + e.op() + ": " + e.problem(), exchange);
      throw;
    } catch (const std::exception& e) {
      (void)comm.group()->all_texts(std::string("\n") + e.what(), exchange);
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
