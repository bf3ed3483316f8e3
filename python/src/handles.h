// The objects by which Python holds a Graph and a Program: the C++ object, and the names by which Python reaches inputs
// and records.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ending.h"
#include "gil.h"
#include "graphsink/graphsink.h"
#include "samples.h"
#include "where.h"

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
  // The same to write to. Throws Error for one in a read-only array.
  Value written_input(nb::handle name_or_value, const Where& where) const;

  std::unique_ptr<Program> program;
  std::shared_ptr<Names> names;
  nb::object callables;                                // GraphHandle::callables, and the LogOwner
  std::map<std::pair<int, int>, BoundOutput> outputs;  // by node and result
  std::set<int> read_only;                             // nodes of inputs that lie in read-only arrays
  std::uint64_t runs = 0;                              // calls that ran steps and have returned, see work()
};

// A Loader or a StreamLoader, until it is closed: its workers may call Python, and must be gone before the interpreter
// is. One call at a time uses it, see Call. All members are used with the GIL.
template <class T>
class LoaderHandleOf {
 public:
  LoaderHandleOf() = default;
  LoaderHandleOf(const LoaderHandleOf&) = delete;
  ~LoaderHandleOf() { close(); }

  // A call that uses the loader; until it ends, others are refused. Throws Error if there is one already, of any
  // thread, and on a thread that makes a sample for this loader.
  class Call {
   public:
    Call(LoaderHandleOf& of, const Where& where) : handle_(of) {
      of.require_free(where);
      of.caller_ = std::this_thread::get_id();
    }
    ~Call() { handle_.caller_ = {}; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    LoaderHandleOf& handle_;
  };
  bool is_in_use() const { return caller_ != std::thread::id(); }

  // Called when Python begins to end, on its main thread: other threads are daemon threads. One that uses the loader
  // keeps it, and one that wants to ends.
  void end_with_python() {
    if (!is_in_use()) close();
  }

  // Calls call(T&, where) without the GIL, as a Call.
  template <class Function>
  auto use(const Function& call) {
    const Where where = here();
    const Call one(*this, where);
    T& of = open(where);
    WithoutGil others_run;
    return call(of, where);
  }
  // The same for what changes nothing: the thread of a Call may do it within that, as functions of train() do.
  template <class Function>
  auto look(const Function& call) {
    if (caller_ != std::this_thread::get_id()) return use(call);
    const Where where = here();
    T& of = open(where);
    WithoutGil others_run;
    return call(of, where);
  }

  // Waits for the workers to finish their sample. On one of these it takes place later.
  void close() {
    if (loader == nullptr) return;
    if (MakingSample::is_for(this)) {
      nb::list kept;
      for (const nb::object& object : used) kept.append(object);
      return end_later(std::shared_ptr<T>(std::move(loader)), std::move(kept));
    }
    WithoutGil others_run;
    loader.reset();
  }
  // Throws Error for a loader that was closed.
  T& open(const Where& where) {
    if (loader == nullptr) throw Error(kName, where, "it was closed", "make another one");
    return *loader;
  }

  template <class Visit>
  void visit_owned(Visit visit) {
    for (nb::object& object : used) visit(object);
  }

  std::unique_ptr<T> loader;
  std::vector<nb::object> used;  // by the loader

 private:
  static constexpr bool kIsLoader = std::is_same_v<T, Loader>;
  static constexpr const char* kName = kIsLoader ? "Loader" : "StreamLoader";

  void require_free(const Where& where) const {
    const bool is_in_sample = MakingSample::is_for(this);
    require_not_left_behind();
    if (!is_in_use() && !is_in_sample) return;
    throw Error(kName, where,
                is_in_use() ? "another call of the same " + std::string(kName) + " is under way"
                            : "its own source or `prepare` has called it",
                kIsLoader
                    ? "use it on one thread, and not in its source, in `prepare` or in a function of train(), where "
                      "it has its position and report(); should_stop ends a training"
                    : "use it on one thread, and not in its source or in `prepare`");
  }

  std::thread::id caller_;  // thread of the Call
};
using LoaderHandle = LoaderHandleOf<Loader>;

}  // namespace graphsink::python
