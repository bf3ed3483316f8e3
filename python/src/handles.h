// The objects by which Python holds a Graph and a Program: the C++ object, and the names by which Python reaches inputs
// and records.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ending.h"
#include "graphsink/graphsink.h"

namespace nb = nanobind;

namespace graphsink::python {

// A Graph shares its names with the Programs that are compiled from it.
struct Names {
  std::map<std::string, Value, std::less<>> inputs;  // and feeds
  std::map<std::string, Value, std::less<>> outputs;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> records;  // the shape of one value
};

struct GraphHandle {
  ~GraphHandle() { end(std::pair(std::move(graph), std::move(names))); }

  Graph graph{};
  std::shared_ptr<Names> names = std::make_shared<Names>();
  // Owns what the graph's ops call, HostFunctions, together with the Programs of the graph: a list of Python's, so that
  // its garbage collector sees it.
  nb::object callables = nb::list();

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(callables);
  }
};

// Memory of bind_memory() that holds an output, once a step has run behind `work`, the ProgramHandle::work() of then.
struct BoundOutput {
  void* begin = nullptr;
  TensorType type;
  std::shared_ptr<const void> owner;  // an object of Python, which any thread may drop
  std::uint64_t work = 0;
};

struct ProgramHandle {
  ProgramHandle(Program made, std::shared_ptr<Names> known, nb::object functions)
      : program(std::make_unique<Program>(std::move(made))), names(std::move(known)), callables(std::move(functions)) {}
  ProgramHandle(ProgramHandle&&) noexcept = default;
  ~ProgramHandle() {
    close();
    end(std::move(names));
  }

  // Waits for the program's work and ends it; calls on it throw Error from then on. It may take place in the function
  // of a host op, which is part of what it would wait for: then it takes place later.
  void close() noexcept;

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(callables);
  }

  // A number that grows when steps may have run, also those of a call that has not returned yet or has failed. Views of
  // outputs compare it. Throws Error for a program that was closed.
  std::uint64_t work(const Where& where) const;

  // The Value of an input or a feed, by its name or as itself. Throws Error for another name.
  Value input(nb::handle name_or_value, const Where& where) const;

  std::unique_ptr<Program> program;
  std::shared_ptr<Names> names;
  nb::object callables;                                // GraphHandle::callables
  std::map<std::pair<int, int>, BoundOutput> outputs;  // by node and result
  std::uint64_t runs = 0;                              // calls that ran steps and have returned, see work()
};

// A Loader or a StreamLoader, until it is closed: its workers may call Python, and must be gone before the interpreter
// is.
template <class T>
struct LoaderHandleOf {
  LoaderHandleOf() = default;
  LoaderHandleOf(const LoaderHandleOf&) = delete;
  ~LoaderHandleOf() { close(); }

  // Waits for the workers to finish their sample.
  void close() {
    if (loader == nullptr) return;
    nb::gil_scoped_release others_run;
    loader.reset();
  }
  // Throws Error for a loader that was closed.
  T& open(const Where& where) {
    if (loader == nullptr) throw Error("Loader", where, "it was closed", "make another one");
    return *loader;
  }

  template <class Visit>
  void visit_owned(Visit visit) {
    for (nb::object& object : used) visit(object);
  }

  std::unique_ptr<T> loader;
  std::vector<nb::object> used;  // by the loader
};
using LoaderHandle = LoaderHandleOf<Loader>;

}  // namespace graphsink::python
