#include "graphsink/scope.h"

#include <mutex>
#include <set>
#include <utility>

#include "base/kept_text.h"
#include "base/printable.h"

namespace graphsink {
namespace {

thread_local const Scope* innermost = nullptr;

}  // namespace

const std::string* kept_text(std::string text) {
  static std::mutex mutex;
  static auto& all = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return &*all.insert(std::move(text)).first;
}

Scope::Scope(const std::string& name, Where where) : outer_(innermost), path_(nullptr) {
  if (name.empty() || !is_utf8(name)) {
    throw Error("Scope", where, name.empty() ? "its name is empty" : "its name \"" + name + "\" is not UTF-8",
                "give a name in UTF-8, such as \"layer3\"");
  }
  std::string path = outer_ ? *outer_->path_ : std::string();
  if (outer_) path.append("/");
  path_ = kept_text(path.append(name));
  innermost = this;
}

Scope::~Scope() { innermost = outer_; }

Where::Where(const char* file, std::uint32_t line) : file_(file), line_(line) {
  if (innermost) scope_ = innermost->path_;
}

}  // namespace graphsink
