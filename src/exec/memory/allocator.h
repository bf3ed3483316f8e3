// How a program gets memory.
#pragma once

#include <new>
#include <string>

#include "device/device.h"

namespace graphsink {

class Allocator {
 public:
  // Returns what `make` returns. If there is no memory for it, calls `make` once more after memory was given up
  // elsewhere; if there is still none, throws an Error that names `what`, which is a noun phrase, and `remedy`, which
  // says how to need less of it, if there is a way.
  template <class Make>
  auto allocate(const std::string& what, const std::string& remedy, const Where& where, Make&& make) {
    try {
      try {
        return make();
      } catch (const OutOfMemory& e) {
        if (!give_up_memory(e.problem())) throw;
        return make();
      }
    } catch (const OutOfMemory& e) {
      throw no_memory(what, remedy, where, e);
    } catch (const std::bad_alloc&) {
      throw no_memory(what, remedy, where, OutOfMemory("cpu", cpu(), "the host is out of memory", ""));
    }
  }

 protected:
  ~Allocator() = default;

 private:
  // Frees what can be made again, because of `problem`. Returns false if there is nothing of that kind.
  virtual bool give_up_memory(const std::string& problem) = 0;
  virtual Error no_memory(const std::string& what, const std::string& remedy, const Where& where,
                          const OutOfMemory& problem) = 0;
};

}  // namespace graphsink
