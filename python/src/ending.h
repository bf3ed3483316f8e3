// How objects end that may free memory of a device. That waits for the work of the device, and so for functions of
// Python's that are part of it: it takes place without the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "gil.h"
#include "graphsink/graphsink.h"
#include "host_op.h"

namespace nb = nanobind;

namespace graphsink::python {

// Keeps an object that was dropped in the function of a host op, or of a loader's sample, which may be part of the work
// that its end waits for, until end_late_objects(), and `callables`, which that work calls.
void end_later(std::shared_ptr<void> object, nb::object callables) noexcept;
// Called with the GIL.
void end_late_objects() noexcept;

// Called when Python begins to end, on its main thread: other threads of Python's are daemon threads.
void begin_end() noexcept;
// Whether this thread is one of these, in no function that a step or a sample waits for.
bool is_left_behind() noexcept;
// Whether an Error tells a thread that is left behind of nothing but a call of another thread, such as that of the main
// one, which waits for all programs.
bool is_of_the_end(const Error& error) noexcept;
// Sets SystemExit, by which a thread that is left behind ends without a word: it lets go of what it holds, and exit
// handlers may join it. Called with the GIL.
void set_exit() noexcept;
// Throws SystemExit on a thread that is left behind, where it would begin what the end of the process may break off.
void require_not_left_behind();

// Ends what is moved out of `object`. Called with the GIL.
template <class T>
void end_at_once(T&& object) noexcept {
  static_assert(!std::is_lvalue_reference_v<T>);
  WithoutGil others_run;
  const T ended = std::move(object);
}
// The same, but later if it was dropped in the function of a host op.
template <class T>
void end(T&& object, nb::object callables = {}) noexcept {
  if (is_in_host_op()) return end_later(std::make_shared<T>(std::move(object)), std::move(callables));
  end_late_objects();
  end_at_once(std::move(object));
}

// A member that ends so. Made and destroyed with the GIL.
template <class T>
struct Ending {
  Ending(T made) : object(std::move(made)) {}  // NOLINT: implicit
  Ending(Ending&&) noexcept = default;
  ~Ending() { end(std::move(object)); }
  T* operator->() { return &object; }
  const T* operator->() const { return &object; }
  T object;
};

// The Values of a graph are many, and only the last of them can free anything. Those of an Eager end at once, because a
// function of a host op may compute with an Eager on the CPU in each of many steps. Dropped in a function on a CUDA
// device, memory of that device stays taken.
inline void end(Value&& value) noexcept {
  if (value.eager() != nullptr) {
    end_at_once(std::move(value));
  } else if (value.graph().use_count() == 1) {
    end<Value>(std::move(value));
  }
}

}  // namespace graphsink::python

// nanobind ends the objects of a class by this function, after its garbage collector and weak references have forgotten
// them.
#define GRAPHSINK_ENDS_BY(call, T)                                \
  template <>                                                     \
  inline void wrap_destruct<T>(void* object) noexcept {           \
    graphsink::python::call(std::move(*static_cast<T*>(object))); \
    std::destroy_at(static_cast<T*>(object));                     \
  }

namespace nanobind::detail {

GRAPHSINK_ENDS_BY(end, graphsink::Value)
GRAPHSINK_ENDS_BY(end, graphsink::Variable)
GRAPHSINK_ENDS_BY(end, graphsink::LossScale)
GRAPHSINK_ENDS_BY(end, graphsink::Optimizer)
GRAPHSINK_ENDS_BY(end_at_once, graphsink::Eager)
GRAPHSINK_ENDS_BY(end_at_once, graphsink::TopK)
GRAPHSINK_ENDS_BY(end_at_once, graphsink::Sorted)
GRAPHSINK_ENDS_BY(end_at_once, graphsink::BatchNorm)
GRAPHSINK_ENDS_BY(end_at_once, graphsink::Padded)
GRAPHSINK_ENDS_BY(end_at_once, graphsink::Unique)

}  // namespace nanobind::detail

#undef GRAPHSINK_ENDS_BY
