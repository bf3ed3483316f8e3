// Scope as a context manager.
#include <algorithm>
#include <list>
#include <memory>

#include "bindings.h"

namespace graphsink::python {

namespace {

// Tells one entry into a scope from all others, as long as it is kept.
using Entry = std::shared_ptr<const char>;

struct OpenScope {
  OpenScope(Entry e, const std::string& name, const Where& where) : entry(std::move(e)), scope(name, where) {}
  Entry entry;
  Scope scope;
};

// Those of a thread, innermost last.
std::list<OpenScope>& open_scopes() {
  thread_local std::list<OpenScope> scopes;
  return scopes;
}

struct ScopeHandle {
  std::string name;
  std::vector<Entry> entries = {};  // `with` statements that have not ended, innermost last

  void enter(const Where& where) {
    Entry entry = std::make_shared<const char>();
    open_scopes().emplace_back(entry, name, where);
    entries.push_back(std::move(entry));
  }
  // Ends those within it, too, which are of generators that are not done; they may leave them later, to no effect.
  void leave() {
    if (entries.empty()) return;
    const Entry entry = std::move(entries.back());
    entries.pop_back();
    std::list<OpenScope>& scopes = open_scopes();
    const auto is_it = [&](const OpenScope& open) { return open.entry == entry; };
    if (std::none_of(scopes.begin(), scopes.end(), is_it)) return;
    while (!is_it(scopes.back())) scopes.pop_back();
    scopes.pop_back();
  }
};

}  // namespace

void bind_scope(nb::module_& m) {
  nb::class_<ScopeHandle>(m, "Scope",
                          "with gs.Scope(\"layer3\"): names what is built within it, in errors, explain(), profiles "
                          "and the names of Variables. Scopes nest: \"encoder/layer3\".")
      .def(nb::init<std::string>(), nb::arg("name"))
      .def(
          "__enter__",
          [](nb::handle self) {
            nb::inst_ptr<ScopeHandle>(self)->enter(here());
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> Scope"))
      .def(
          "__exit__", [](ScopeHandle& self, nb::handle, nb::handle, nb::handle) { self.leave(); },
          nb::arg("type").none(), nb::arg("error").none(), nb::arg("traceback").none());
}

}  // namespace graphsink::python
