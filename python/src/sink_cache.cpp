// gs.SinkCache: work that Python code gives to a CUDA stream, captured once for each key.
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bindings.h"
#include "garbage.h"
#include "graphsink/capture.h"
#include "interpreter.h"
#include "log.h"
#include "memory.h"
#include "streams.h"

namespace graphsink::python {

namespace {

// The arguments that key_of() takes.
struct KeyParts {
  nb::handle object;
};

}  // namespace

}  // namespace graphsink::python

namespace nanobind::detail {

template <>
struct type_caster<graphsink::python::KeyParts> {
  NB_TYPE_CASTER(graphsink::python::KeyParts, const_name("graphsink._types.Key"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};

}  // namespace nanobind::detail

namespace graphsink::python {

namespace {

// --- keys

// A part that is no integer, string or tuple. No such part is a list in Python, so that lists stand for these.
void add_tagged(Key& key, nb::handle part) {
  key.add(std::array<std::string, 1>{nb::cast<std::string>(nb::object(nb::str(part)))});
}

[[noreturn]] void refuse_part(nb::handle part) {
  std::string type = nb::cast<std::string>(nb::object(part.type().attr("__name__")));
  const std::string module = nb::cast<std::string>(nb::str(nb::object(part.type().attr("__module__"))));
  if (module != "builtins") type = module + "." + type;  // numpy.bool is not bool
  throw nb::type_error(("a key consists of int, float, bool, str, None and tuples of them, not of " + type +
                        "; of an array or a tensor take what the work depends on: its shape as a tuple of int, its "
                        "address as an int")
                           .c_str());
}

// Parts that are not of one type never become equal: 1, 1.0, True and "1" differ, and (1,) is another key than 1.
void add_part(Key& key, nb::handle part) {
  if (part.is_none() || PyBool_Check(part.ptr())) return add_tagged(key, part);
  if (PyFloat_Check(part.ptr())) return add_tagged(key, nb::float_(PyFloat_AsDouble(part.ptr())));  // also of NumPy
  if (PyUnicode_Check(part.ptr())) {
    const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(part.ptr(), "utf-8", "surrogatepass"));
    if (!bytes.is_valid()) throw nb::python_error();
    char* begin = nullptr;
    Py_ssize_t size = 0;
    PyBytes_AsStringAndSize(bytes.ptr(), &begin, &size);
    key.add(std::string_view(begin, static_cast<std::size_t>(size)));
  } else if (PyTuple_Check(part.ptr())) {
    Key inner;
    for (nb::handle each : nb::borrow<nb::tuple>(part)) add_part(inner, each);
    key.add(inner);
  } else if (PyIndex_Check(part.ptr()) && PyObject_HasAttrString(part.ptr(), "__len__") == 0) {
    const nb::object integer = nb::steal(PyNumber_Index(part.ptr()));
    if (!integer.is_valid()) throw nb::python_error();
    std::int64_t number = 0;
    if (!nb::detail::load_integer(integer, number)) return add_tagged(key, integer);  // it has more than 64 bits
    key.add(number);
  } else {
    refuse_part(part);
  }
}

Key key_of(nb::handle object) {
  Key key;
  add_part(key, object);
  return key;
}

// --- the function

// The exception of a function of Python, on its way through the library.
struct FromPython {
  std::shared_ptr<nb::python_error> error;
};
struct RaisedError : Error, FromPython {
  RaisedError(Error as_error, FromPython from) : Error(std::move(as_error)), FromPython(std::move(from)) {}
};
struct RaisedOther : std::runtime_error, FromPython {
  RaisedOther(const std::string& text, FromPython from) : std::runtime_error(text), FromPython(std::move(from)) {}
};

// Throws what the report of a failed capture says of the exception.
[[noreturn]] void throw_raised(const std::shared_ptr<nb::python_error>& error) {
  const nb::object value = nb::borrow(error->value());
  if (nb::isinstance(value, nb::module_::import_("graphsink._error").attr("Error"))) {
    std::array<std::string, 4> texts;
    bool is_whole = true;
    const auto take = [&](const char* name, auto& to) {
      is_whole = is_whole && nb::try_cast(nb::object(nb::getattr(value, name, nb::none())), to);
    };
    std::uint32_t line = 0;
    ErrorCode code{};
    take("file", texts[0]), take("op", texts[1]), take("problem", texts[2]), take("remedy", texts[3]);
    take("line", line), take("code", code);
    if (is_whole)  // a user may have made it of anything
      throw RaisedError(Error(texts[1], Where(interned(texts[0]), line), texts[2], texts[3], code), {error});
  }
  throw RaisedOther(nb::cast<std::string>(nb::module_::import_("graphsink._host_op").attr("describe")(value)), {error});
}

// Keeps Python's garbage collector from running, which may free memory of a device, and so break a capture.
struct WithoutCollection {
  WithoutCollection() : was_enabled(PyGC_Disable() != 0) {}
  WithoutCollection(const WithoutCollection&) = delete;
  ~WithoutCollection() {
    if (was_enabled) PyGC_Enable();
  }
  bool was_enabled;
};

// The user's function, which the library calls without the GIL.
struct Work {
  nb::handle function;
  Where where;
  std::shared_ptr<nb::python_error> raised{};  // by the last call
  bool ends = false;                           // it is a KeyboardInterrupt or the like, which no failed capture drops

  void operator()(cudaStream_t stream) {
    require_running("SinkCache", where);
    WithGil gil;
    if (ends) throw_raised(raised);
    raised = nullptr;
    const WithoutCollection no_frees;
    try {
      ending_here([&] { function(reinterpret_cast<std::uintptr_t>(stream)); });
    } catch (nb::python_error& error) {
      raised = std::make_shared<nb::python_error>(std::move(error));
      ends = !raised->matches(PyExc_Exception);
      throw_raised(raised);
    }
  }
};

// --- memory

// An array of any device, or an address and a number of bytes. A number of NumPy is neither: it has memory of its own.
MemoryRange given_range(nb::handle memory, std::optional<std::size_t> bytes, const char* op) {
  const bool is_number = nb::isinstance(memory, nb::module_::import_("numpy").attr("generic"));
  const std::optional<MemoryRange> found = is_number ? std::nullopt : range_of(memory, op, here());
  if (found) return {found->begin, bytes.value_or(found->bytes)};
  std::uintptr_t address = 0;
  if (!PyLong_Check(memory.ptr()) || PyBool_Check(memory.ptr()) || !nb::try_cast(memory, address))
    throw nb::type_error("memory is an address as an int, or an array with __cuda_array_interface__ or __dlpack__()");
  if (!bytes) throw nb::type_error("an address needs the number of bytes: register_memory(address, bytes)");
  return {reinterpret_cast<const void*>(address), *bytes};
}

// --- the cache

class SinkCacheHandle {
 public:
  SinkCacheHandle(SinkOptions options, nb::handle log, const Where& where)
      : log_(nb::borrow(log)), borrowed_log_(std::make_shared<nb::handle>(log)) {
    options.log = log_function(borrowed_log_);
    cache_ = std::make_unique<SinkCache>(std::move(options), where);
  }
  SinkCacheHandle(const SinkCacheHandle&) = delete;
  ~SinkCacheHandle() { close(); }

  // Waits for loops that are under way.
  void close() {
    if (std::unique_ptr<SinkCache> ended = std::move(cache_)) {
      WithoutGil others_run;
      ended.reset();
    }
    *borrowed_log_ = {};
  }

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(log_);
  }

  // Calls call(SinkCache&, where) without the GIL. Throws Error if another thread is in a call of the same cache.
  template <class Call>
  auto use(const Call& call) {
    const Where where = here();
    const InUse in_use(*this, where);
    WithoutGil others_run;
    return call(*cache_, where);
  }

 private:
  // Its functions hold the GIL. The function of run() may use the cache, on the same thread.
  struct InUse {
    InUse(SinkCacheHandle& of, const Where& where) : handle(of) {
      const std::thread::id here = std::this_thread::get_id();
      if (handle.cache_ == nullptr)
        throw Error("SinkCache", where, "it was ended by the garbage collector", "keep a reference to it");
      if (handle.uses_ > 0 && handle.user_ != here) {
        throw Error("SinkCache", where, "another thread is in a call of the same SinkCache",
                    "make a SinkCache for each thread, or let them take turns by a threading.Lock");
      }
      handle.user_ = here;
      ++handle.uses_;
    }
    ~InUse() { --handle.uses_; }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;
    SinkCacheHandle& handle;
  };

  std::unique_ptr<SinkCache> cache_;
  nb::object log_;
  std::shared_ptr<nb::handle> borrowed_log_;
  std::thread::id user_;
  int uses_ = 0;
};

// Throws the exception of Python that raised an Error, too, as its cause.
[[noreturn]] void throw_with_cause(const Error& error, const nb::python_error& cause) {
  set_error(error);
  nb::python_error made;
  PyException_SetCause(made.value().ptr(), nb::borrow(cause.value()).release().ptr());
  throw made;
}

using FunctionOfStream = nb::typed<nb::callable, nb::object(std::uintptr_t)>;

void run(SinkCacheHandle& self, nb::handle stream, KeyParts key, const FunctionOfStream& function, std::int64_t steps) {
  const Key made = key_of(key.object);
  const cudaStream_t given = stream_of(stream).value_or(nullptr);
  Work work{function, here()};
  try {
    self.use([&](SinkCache& cache, const Where& where) { cache.run(given, made, work, {.steps = steps}, where); });
  } catch (const FromPython& raised) {
    throw nb::python_error(*raised.error);
  } catch (const Error& error) {
    if (work.ends) throw nb::python_error(*work.raised);
    if (work.raised == nullptr) throw;
    throw_with_cause(error, *work.raised);
  }
  if (work.ends) throw nb::python_error(*work.raised);
}

void bind_calls(nb::class_<SinkCacheHandle>& type) {
  type.def("run", run, nb::arg("stream").none(), nb::arg("key").none(), nb::arg("function"), nb::kw_only(),
           nb::arg("steps") = SinkRunOptions{}.steps,
           "Enqueues the work of function(stream) on `stream`, once: by calling it, or by launching what it enqueued "
           "when it was last called with this key and this stream.\n\nstream: an int (cudaStream_t), an object with "
           "__cuda_stream__(), cuda_stream (torch.cuda.Stream) or ptr (cupy.cuda.Stream), or None for the legacy "
           "default stream. key: an int, float, bool, str, None or a tuple of them, also nested; whatever the function "
           "chooses on the host must be in it: shapes, flags, addresses that may change. Keys of other types differ: "
           "1, 1.0 and True. function: called with the stream to use, an int, which is another than the given one "
           "where that is the legacy stream. All its work must go to that stream, or to streams that wait for an event "
           "of it and that it then waits for; a Program takes part by enqueue(). A capture breaks if it allocates, "
           "frees or waits by CUDA, or if another thread waits for the device meanwhile. It may be called twice in one "
           "call, if the first was a capture that failed: what it did on the host is done twice then. Its result is "
           "dropped. steps: repeats the work as if run() was "
           "called so often, as one launch where CUDA can hold the work in a loop.\n\nOther Python threads run "
           "meanwhile, but the function has the GIL. An exception of the function passes through unchanged where it is "
           "called as it is; in a capture it makes the capture fail, unless it is a KeyboardInterrupt or another that "
           "is no Exception: that ends the call at once, and the report counts a failed capture. Python's garbage "
           "collector does not run in the function, because it may free device memory. Raises Error in strict mode "
           "where a capture fails, with that exception as its __cause__; "
           "for less than one step; for a stream that does not exist; and where a CUDA error has ended the context of "
           "the process.")
      .def(
          "register_memory",
          [](SinkCacheHandle& self, nb::handle memory, std::optional<std::size_t> bytes) {
            const MemoryRange found = given_range(memory, bytes, "register_memory");
            self.use([&](SinkCache& cache, const Where&) { cache.register_memory(found.begin, found.bytes); });
          },
          nb::arg("memory"), nb::arg("bytes").none() = nb::none(),
          "For `check_every`: says that this device memory is alive until forget_memory(): an address and a number of "
          "bytes, or an array with __cuda_array_interface__ or __dlpack__(), of whose memory no reference is kept. An "
          "address of registered memory that a captured node was given must lie in the same registration at each "
          "check.")
      .def(
          "forget_memory",
          [](SinkCacheHandle& self, nb::handle memory) {
            const MemoryRange found = given_range(memory, 0, "forget_memory");
            self.use([&](SinkCache& cache, const Where&) { cache.forget_memory(found.begin); });
          },
          nb::arg("memory"), "Ends what register_memory() says of the same address or array.")
      .def(
          "try_again",
          [](SinkCacheHandle& self) { self.use([](SinkCache& cache, const Where&) { cache.try_again(); }); },
          "Refused keys are captured again by their next calls, after what was wrong with them has changed.")
      .def(
          "clear", [](SinkCacheHandle& self) { self.use([](SinkCache& cache, const Where&) { cache.clear(); }); },
          "Drops all keys but those whose last launch has not ended. Does not wait.")
      .def(
          "report",
          [](SinkCacheHandle& self) {
            SinkReport report = self.use([](SinkCache& cache, const Where&) { return cache.report(); });
            for (SinkFailure& failure : report.failures) {
              failure.problem = python_names(failure.problem);
              failure.remedy = python_names(failure.remedy);
            }
            return report;
          },
          "Counts of the work so far, and the reasons of failures; str() of it is a table.")
      .def(
          "write_node_names",
          [](SinkCacheHandle& self, const FilePath& path) {
            self.use([&](SinkCache& cache, const Where& where) { cache.write_node_names(path.path.string(), where); });
          },
          nb::arg("path"), "Writes a file with names for what profilers show of captured keys.");
}

}  // namespace

void bind_sink_cache(nb::module_& m) {
  const SinkOptions defaults;
  nb::class_<SinkCacheHandle> type(
      m, "SinkCache",
      "Sinks code that knows nothing of graphsink: a function gives work to a CUDA stream, which is captured once for "
      "each key and launched in one call from then on.\n\n    sinks = gs.SinkCache()\n    for x in data:\n        "
      "sinks.run(stream, (batch, length), step)    # step(stream) enqueues\n    print(sinks.report())\n\nA launch "
      "repeats what was captured: the same kernels with the same arguments and addresses. A number that is passed to a "
      "kernel by value keeps the value that it had then. What the function enqueues (memory, kernels, handles of "
      "libraries) must exist as long as the key may be launched, so keep references to arrays, also of the host. Used "
      "by one thread at a time; another one that calls meanwhile gets Error. When it ends it waits for loops alone.",
      nb::is_weak_referenceable(), nb::type_slots(OwnedObjects<SinkCacheHandle>::slots));
  type.def(
      "__init__",
      [](SinkCacheHandle* self, std::size_t max_bytes, int warm_runs, bool strict, bool watch_legacy_stream,
         int check_every, nb::handle log) {
        new (self) SinkCacheHandle({max_bytes, warm_runs, strict, watch_legacy_stream, check_every, {}}, log, here());
      },
      nb::kw_only(), nb::arg("max_bytes") = defaults.max_bytes, nb::arg("warm_runs") = defaults.warm_runs,
      nb::arg("strict") = defaults.strict, nb::arg("watch_legacy_stream") = defaults.watch_legacy_stream,
      nb::arg("check_every") = defaults.check_every, nb::arg("log").none().sig("None") = nb::none(),
      "max_bytes: bounds what is kept for keys, of which the least recently used are dropped first; 0: a sixty-fourth "
      "of the memory of each device. warm_runs: calls with a key that run as they are before one is captured. strict: "
      "run() raises Error where a capture fails, before any of the work has run; otherwise the call runs as it is. "
      "watch_legacy_stream: finds work that the function gives to the legacy stream by mistake, which is refused to "
      "all threads during a capture. check_every: at every Nth launch of a key the function is captured once more, "
      "without running its work, and compared with what is launched; 0: never. log: a function of a LogLevel and a "
      "message that takes the reason of each failure once; by default they go to spdlog's logger.\n\nRaises Error in a "
      "build without CUDA.");
  bind_calls(type);
}

}  // namespace graphsink::python
