// Scope: a name for a part of a graph.
#pragma once

#include <cstddef>
#include <string>

#include "graphsink/error.h"

namespace GRAPHSINK_PUBLIC graphsink {

// As long as a Scope lives, what its thread builds carries its name: errors, explain(), memory reports, profiles and
// the names of Variables. Ten layers that one function builds have the same lines of source, and differ by their
// scopes:
//
//   Value layer(Value x) {
//     Variable w("w", Tensor::kaiming({64, 64}, 1));  // "layer3/w"
//     return relu(matmul(x, w));                      // "model.cpp:12 in layer3"
//   }
//   for (int i = 0; i < 10; ++i) {
//     Scope scope("layer" + std::to_string(i));
//     x = layer(x);
//   }
//
// Scopes nest: one within another is "encoder/layer3". The bodies of loops and branches belong to the scopes around
// them, and what grad() adds belongs to the scope of the op whose gradient it is. Nodes and Variables that optimizers
// add belong to the scope of their call; only Variables that they keep for a parameter are named after the parameter.
// Inputs, records and outputs keep the names that they were given, because the host asks for them by name.
//
// A Scope is a variable of a block: it ends before the one around it, on the thread that made it, and other threads do
// not see it. The process keeps each name until it ends, once: name parts of models, not steps or requests.
class Scope {
 public:
  // Throws Error for an empty name, and for one that is not UTF-8.
  explicit Scope(const std::string& name, Where where = Where::current());
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  static void* operator new(std::size_t) = delete;
  static void* operator new[](std::size_t) = delete;

 private:
  friend class Where;

  const Scope* outer_;
  const std::string* path_;  // "encoder/layer3"
};

}  // namespace graphsink
