#include "graphsink/scope.h"

#include "base/printable.h"

namespace graphsink {
namespace {

thread_local const Scope* innermost = nullptr;

}  // namespace

Scope::Scope(const std::string& name, Where where) : outer_(innermost) {
  if (name.empty() || !is_utf8(name)) {
    throw Error("Scope", where, name.empty() ? "its name is empty" : "its name \"" + name + "\" is not UTF-8",
                "give a name in UTF-8, such as \"layer3\"");
  }
  path_ = std::make_shared<const std::string>(outer_ ? *outer_->path_ + "/" + name : name);
  innermost = this;
}

Scope::~Scope() { innermost = outer_; }

Where::Where(const char* file, std::uint32_t line) : file_(file), line_(line) {
  if (innermost) scope_ = innermost->path_;
}

}  // namespace graphsink
