// Objects of Python that a bound class owns, as the garbage collector sees them. A function that a program calls mostly
// refers to the program, by its globals or its closure: without this none of the two would ever be freed.
#pragma once

#include <nanobind/nanobind.h>

namespace graphsink::python {

// The slots of a class T with a member function that calls `visit(object)` for each nb::object that it owns:
//   template <class Visit> void visit_owned(Visit visit);
template <class T>
struct OwnedObjects {
  static constexpr bool kCloses = requires(T & object) { object.close(); };

  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nanobind::inst_ready(self)) return 0;
    int result = 0;
    nanobind::inst_ptr<T>(self)->visit_owned([&](nanobind::object& owned) {
      if (result == 0 && owned.is_valid()) result = visit(owned.ptr(), arg);
    });
    return result;
  }
  static int clear(PyObject* self) {
    if (!nanobind::inst_ready(self)) return 0;
    T& object = *nanobind::inst_ptr<T>(self);
    if constexpr (kCloses) object.close();  // its threads may be calling what goes
    object.visit_owned([](nanobind::object& owned) { owned.reset(); });
    return 0;
  }
  // The collector finalizes all garbage before it clears any of it: what the object calls when it is closed, such as a
  // log function, is whole then.
  static void finalize(PyObject* self) {
    if constexpr (kCloses) {
      if (!nanobind::inst_ready(self)) return;
      const nanobind::error_scope kept;
      nanobind::inst_ptr<T>(self)->close();
    }
  }
  static inline const PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
                                             {Py_tp_clear, reinterpret_cast<void*>(&clear)},
                                             {kCloses ? Py_tp_finalize : 0, reinterpret_cast<void*>(&finalize)},
                                             {0, nullptr}};
  // For a class whose objects belong to others that are cleared.
  static inline const PyType_Slot slots_without_clear[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
                                                           {0, nullptr}};
};

}  // namespace graphsink::python
