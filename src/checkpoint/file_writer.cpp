#include "checkpoint/file_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <memory>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/input_file.h"
#include "checkpoint/shard_index.h"

namespace graphsink {
namespace {

namespace fs = std::filesystem;

// write() takes no more than this on Linux.
constexpr std::size_t kMostAtOnce = 0x7ffff000;
constexpr int kMostLinks = 40;  // as many as the kernel follows
constexpr int kMostTries = 100;
constexpr int kLockTries = 500;
constexpr unsigned kLockPause = 20'000;  // microseconds: 10 seconds in all
constexpr std::string_view kPartial = ".partial.";

const char* kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a directory";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "not a regular file";
  }
}

// The file, there or not, that a path leads to through symbolic links.
fs::path follow_links(fs::path path, std::error_code& code) {
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, code)); ++links) {
    if (links == kMostLinks) {
      code = std::make_error_code(std::errc::too_many_symbolic_link_levels);
      return path;
    }
    fs::path target = fs::read_symlink(path, code);
    if (code) return path;
    path = path.parent_path() / target;  // which is `target` where that is absolute
  }
  if (code == std::errc::no_such_file_or_directory) code.clear();
  return path;
}

// An open file, or none.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor() {
    if (is_open()) close(file_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool is_open() const { return file_ >= 0; }
  int get() const { return file_; }

 private:
  int file_;
};

std::string random_digits() {
  std::random_device random;
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%08x%08x", random(), random());
  return digits;
}

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// With what the names of temporary files begin: the name of the file, as much of it as leaves room for the rest.
std::string partial_prefix(const fs::path& target) {
  std::string name = target.filename().string();
  const long most = pathconf(directory_of(target).c_str(), _PC_NAME_MAX);
  const std::size_t room = static_cast<std::size_t>(most > 0 ? most : NAME_MAX) - kPartial.size() - kDigits;
  if (name.size() > room) {
    std::size_t end = room;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;  // between characters of UTF-8
    name.resize(end);
  }
  return name += kPartial;
}

// A writer keeps a lock on its file for as long as it lives. Returns false if another writer has taken the file for
// left behind, between its creation and this.
bool lock_new(int file) {
  struct stat status;
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return fstat(file, &status) == 0 && status.st_nlink > 0;
}

// Names of the entries of a directory that begin with `prefix`; none where it cannot be listed, and it can still be
// written then. Not by std::filesystem, whose iterators end the process when there is no memory for them.
std::vector<std::string> names_in(const fs::path& directory, std::string_view prefix) {
  auto close_directory = [](DIR* open) { closedir(open); };
  const std::unique_ptr<DIR, decltype(close_directory)> entries(opendir(directory.c_str()));
  std::vector<std::string> names;
  if (!entries) return names;
  while (const dirent* entry = readdir(entries.get()))
    if (std::string_view(entry->d_name).starts_with(prefix)) names.emplace_back(entry->d_name);
  return names;
}

// Paths of the shards of `target` with these digits, whether an index refers to them or not.
std::vector<fs::path> shards_with(const fs::path& target, const std::string& digits) {
  std::vector<fs::path> paths;
  const fs::path directory = directory_of(target);
  for (const std::string& name : names_in(directory, target.filename().string() + "." + digits + "-"))
    if (name.ends_with(".safetensors")) paths.push_back(directory / name);
  return paths;
}

void remove_all(const std::vector<fs::path>& paths) noexcept {
  for (const fs::path& path : paths) unlink(path.c_str());
}

// Removes a temporary file whose writer has died, because nobody has it locked, and the shards with its digits, unless
// they belong to the index at `target`. The file goes last: it is how the shards are found. Nothing is removed while
// the index cannot be read.
void remove_if_left_behind(const fs::path& path, const std::string& digits, const fs::path& target) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status;
  const bool is_left_behind = file.is_open() && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                              flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  if (!is_left_behind) return;
  const DigitsAt used = digits_at(target);
  if (!used.is_known) return;
  if (used.digits != digits) remove_all(shards_with(target, digits));
  unlink(path.c_str());
}

void remove_left_behind(const fs::path& target) {
  const fs::path directory = directory_of(target);
  const std::string prefix = partial_prefix(target);
  for (const std::string& name : names_in(directory, prefix)) {
    const std::string digits = name.substr(prefix.size());
    if (are_digits(digits)) remove_if_left_behind(directory / name, digits, target);
  }
}

// Gives a new file the permissions of the one that it replaces, and its owner and group where the system allows that.
// If it does not, the members of the new group may do no more than everybody could.
void keep_access(int file, const struct stat& old) {
  mode_t mode = old.st_mode & 0777;
  struct stat now;
  if (fstat(file, &now) != 0) return;
  if (now.st_gid != old.st_gid && fchown(file, static_cast<uid_t>(-1), old.st_gid) != 0)
    mode &= 0707u | (mode & 7u) << 3;
  if (now.st_uid == old.st_uid || fchown(file, old.st_uid, static_cast<gid_t>(-1)) == 0 || errno == EPERM)
    fchmod(file, mode);
}

// Creates the file, with the access that `target` has if it is there. O_EXCL follows no symbolic link, and opens
// nothing that is there. Whoever may not read the old file may not read the new one either, at no time.
int create(const fs::path& path, const fs::path& target) {
  struct stat old;
  const bool is_replaced = stat(target.c_str(), &old) == 0;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, is_replaced ? 0600 : 0666);
  if (file >= 0 && is_replaced) keep_access(file, old);
  return file;
}

// A directory, open as long as this lives. While it is locked, no other writer replaces a file in it, so that each
// knows what it replaces. Some file systems cannot open, lock or sync a directory, and then nothing better can be done.
class Directory {
 public:
  explicit Directory(const fs::path& path) : file_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  ~Directory() { flock(file_.get(), LOCK_UN); }  // a process that was forked meanwhile has the file open, too
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  // Writers hold it for a moment. Returns false if somebody keeps it for long.
  bool lock() const {
    for (int tries = 0; tries < kLockTries; ++tries) {
      if (flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
      usleep(kLockPause);
    }
    return false;
  }
  // Makes the names in it durable. Returns the code of the error, or 0.
  int sync() const {
    if (!file_.is_open() || fsync(file_.get()) == 0) return 0;
    return errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  }

 private:
  Descriptor file_;
};

// The shards of the index at `target`, which is about to be replaced or removed. The temporary file that names their
// digits has the next writer remove them if this process is killed, or could not remove them itself.
class OldShards {
 public:
  explicit OldShards(const fs::path& target) {
    const std::optional<std::string> digits = digits_at(target).digits;
    if (!digits) return;
    paths_ = shards_with(target, *digits);
    note_ = directory_of(target) / (partial_prefix(target) + *digits);
    file_ = ::open(note_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ >= 0) lock_new(file_);
  }
  ~OldShards() {
    if (file_ < 0) return;
    if (!is_note_kept_) unlink(note_.c_str());
    close(file_);
  }
  OldShards(const OldShards&) = delete;
  OldShards& operator=(const OldShards&) = delete;

  // The index is gone: the temporary file stays unless the shards are removed.
  void keep_note() noexcept { is_note_kept_ = true; }
  void remove() noexcept {
    remove_all(paths_);
    is_note_kept_ = false;
  }

 private:
  std::vector<fs::path> paths_;
  fs::path note_;
  int file_ = -1;
  bool is_note_kept_ = false;
};

[[noreturn]] void refuse_call(const fs::path& path, const Where& where, const char* verb, const char* call, int code) {
  const char* remedy = code == ENOENT         ? "make its directory first"
                       : code == ENAMETOOLONG ? "give it a shorter name"
                                              : "check the directory, its permissions and its free space";
  throw Error(path.string(), where,
              std::string("cannot be ") + verb + ": " + call + ": " + std::generic_category().message(code), remedy,
              ErrorCode::io);
}

void lock(const Directory& directory, const fs::path& target, const fs::path& path, const Where& where,
          const char* verb) {
  if (directory.lock()) return;
  throw Error(
      path.string(), where,
      std::string("cannot be ") + verb + ": another process has locked the directory " + directory_of(target).string(),
      "end the process that holds the lock (flock), or give a path in another directory", ErrorCode::io);
}

// The regular file, there or not, that the path leads to.
fs::path file_at(const fs::path& path, const Where& where, const char* verb) {
  std::error_code code;
  fs::path target = follow_links(path, code);
  if (code) refuse_call(path, where, verb, "open", code.value());
  const fs::file_status status = fs::status(target, code);
  const bool is_directory = fs::is_directory(status) || !target.has_filename();
  if (is_directory || (fs::exists(status) && !fs::is_regular_file(status))) {
    throw Error(path.string(), where,
                std::string("cannot be ") + verb + ": it is " +
                    kind_of(is_directory ? fs::file_type::directory : status.type()),
                "name a file", ErrorCode::io);
  }
  return target;
}

}  // namespace

FileWriter::FileWriter(fs::path path, Where where)
    : path_(std::move(path)), where_(where), target_(file_at(path_, where_, "written")) {
  remove_left_behind(target_);
  open_partial();
}

void FileWriter::open_partial() {
  for (int tries = 0; tries < kMostTries; ++tries) {
    digits_ = random_digits();
    partial_ = directory_of(target_) / (partial_prefix(target_) + digits_);
    const int file = create(partial_, target_);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) refuse("open", errno);
    if (lock_new(file)) {
      file_ = file;
      return;
    }
    unlink(partial_.c_str());
    close(file);
  }
  refuse("lock", EWOULDBLOCK);
}

FileWriter::~FileWriter() {
  remove_all(shards_);
  if (file_ < 0) return;
  unlink(partial_.c_str());
  close(file_);
}

void FileWriter::write_to(int file, const void* data, std::size_t bytes) const {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = ::write(file, next, std::min(bytes, kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse("write", errno);
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

std::string FileWriter::write_shard(std::size_t number, std::size_t count, std::span<const Bytes> parts) {
  std::string name = shard_name(target_.filename().string(), digits_, number, count);
  const fs::path& path = shards_.emplace_back(directory_of(target_) / name);
  const Descriptor file(create(path, target_));
  if (!file.is_open()) refuse("open", errno);
  for (const Bytes& part : parts) write_to(file.get(), part.data(), part.size());
  if (fsync(file.get()) != 0) refuse("fsync", errno);
  return name;
}

void FileWriter::commit() {
  const Directory directory(directory_of(target_));
  if (fsync(file_) != 0) refuse("fsync", errno);
  // The names of the shards must be durable before that of the index.
  if (const int code = shards_.empty() ? 0 : directory.sync()) refuse("fsync of the directory", code);
  lock(directory, target_, path_, where_, "written");
  OldShards old(target_);
  if (rename(partial_.c_str(), target_.c_str()) != 0) refuse("rename", errno);
  old.keep_note();
  close(std::exchange(file_, -1));
  shards_.clear();
  // Or a crash may bring the old index back, which needs the old shards.
  if (const int code = directory.sync()) refuse("fsync of the directory", code);
  old.remove();
}

void FileWriter::refuse(const char* call, int code) const { refuse_call(path_, where_, "written", call, code); }

bool remove_file(const fs::path& path, Where where) {
  const fs::path target = file_at(path, where, "removed");
  remove_left_behind(target);
  const Directory directory(directory_of(target));
  lock(directory, target, path, where, "removed");
  std::error_code code;
  if (!fs::exists(target, code)) return false;
  InputFile file(target, where);
  const std::optional<std::string> text = index_text(file);
  if (text && !digits_of(parse_index(*text, path.string(), where), target)) {
    throw Error(path.string(), where, "cannot be removed: its shards were not written for this path",
                "remove the index and the shards that belong to no other index yourself", ErrorCode::io);
  }
  OldShards old(target);
  if (unlink(target.c_str()) != 0) refuse_call(path, where, "removed", "unlink", errno);
  old.keep_note();
  if (const int failure = directory.sync()) refuse_call(path, where, "removed", "fsync of the directory", failure);
  old.remove();
  return true;
}

}  // namespace graphsink
