// Scope and RandomPart as context managers.
#include <algorithm>
#include <iterator>
#include <list>
#include <memory>

#include "bindings.h"

namespace graphsink::python {

namespace {

// Tells one entry into a scope from all others, as long as it is kept.
using Entry = std::shared_ptr<const char>;

// An object of C++ that lives as long as its `with` statement.
template <class T>
struct Open {
  template <class Argument>
  Open(Entry e, const Argument& argument, const Where& where) : entry(std::move(e)), object(argument, where) {}
  Entry entry;
  T object;
};

// Those of a thread, innermost last.
template <class T>
std::list<Open<T>>& open_objects() {
  thread_local std::list<Open<T>> objects;
  return objects;
}

template <class T, class Argument>
struct Block {
  Argument argument;
  std::vector<Entry> entries = {};  // `with` statements that have not ended, innermost last

  void enter(const Where& where) {
    Entry entry = std::make_shared<const char>();
    open_objects<T>().emplace_back(entry, argument, where);
    entries.push_back(std::move(entry));
  }
  // Leaves the last that this thread has opened. Ends those within it, too, which belong to generators that are not
  // done; they may leave them later, to no effect.
  void leave() {
    std::list<Open<T>>& objects = open_objects<T>();
    const auto is_open = [&](const Entry& entry) {
      return std::any_of(objects.begin(), objects.end(), [&](const Open<T>& open) { return open.entry == entry; });
    };
    const auto found = std::find_if(entries.rbegin(), entries.rend(), is_open);
    if (found == entries.rend()) {
      if (!entries.empty()) entries.pop_back();
      return;
    }
    const Entry entry = *found;
    entries.erase(std::next(found).base());
    while (objects.back().entry != entry) objects.pop_back();
    objects.pop_back();
  }
};

// Makes objects of a class ones for `with` statements.
template <class T, class Argument>
void bind_with(nb::class_<Block<T, Argument>> bound, const std::string& name) {
  using Bound = Block<T, Argument>;
  const std::string enter = "def __enter__(self) -> " + name;
  bound
      .def(
          "__enter__",
          [](nb::handle self) {
            nb::inst_ptr<Bound>(self)->enter(here());
            return nb::borrow(self);
          },
          nb::sig(enter.c_str()))
      .def(
          "__exit__", [](Bound& self, nb::handle, nb::handle, nb::handle) { self.leave(); }, nb::arg("type").none(),
          nb::arg("error").none(), nb::arg("traceback").none());
}

// A RandomPart that is made of one argument.
struct PartArgument {
  std::int64_t number;
  RandomPartOptions options;
};
struct PartOfArgument : RandomPart {
  PartOfArgument(const PartArgument& argument, const Where& where)
      : RandomPart(argument.number, argument.options, where) {}
};

}  // namespace

void bind_scope(nb::module_& m) {
  bind_with(
      nb::class_<Block<Scope, std::string>>(
          m, "Scope",
          "with gs.Scope(\"layer3\"): names what is built within it, in errors, explain(), profiles and the names of "
          "Variables. Scopes nest: \"encoder/layer3\".")
          .def(nb::init<std::string>(), nb::arg("name")),
      "Scope");
  using BoundPart = Block<PartOfArgument, PartArgument>;
  bind_with(
      nb::class_<BoundPart>(
          m, "RandomPart",
          "with gs.RandomPart(rank): random ops that are built within it, dropout() included, draw for a part of a "
          "larger tensor: part r of tensors [n, ...] gets the numbers that rows r * n to (r + 1) * n - 1 of the whole "
          "would get. With axis and parts tensors are divided along another axis, negative ones from behind, into so "
          "many parts, as the hidden elements of a model on several ranks are: gs.RandomPart(rank, axis=-1, "
          "parts=ranks). One along the first axis and one along another both count; of several of a kind the innermost "
          "does.")
          .def(
              "__init__",
              [](BoundPart* self, std::int64_t number, int axis, std::int64_t parts) {
                new (self) BoundPart{{number, {axis, parts}}};
              },
              nb::arg("number"), nb::kw_only(), nb::arg("axis") = RandomPartOptions().axis,
              nb::arg("parts") = RandomPartOptions().parts),
      "RandomPart");
}

}  // namespace graphsink::python
