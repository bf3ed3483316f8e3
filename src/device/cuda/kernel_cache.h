// Kernels that were compiled at run time, as files in a folder, so that the next process need not compile them.
#pragma once

#include <optional>
#include <string>

#include "base/log.h"

namespace graphsink {

// A file is used only if it is complete and holds the whole key that is asked for: so keys must contain everything that
// the code depends on. Several processes may use one folder. Where a file cannot be read or written, kernels are
// compiled again; a folder that cannot be written is logged once.
class KernelCache {
 public:
  // In the folder that the environment variable GRAPHSINK_KERNEL_CACHE names; nowhere if it is set and empty. If it is
  // not set: in graphsink/kernels in $XDG_CACHE_HOME, or in ~/.cache.
  explicit KernelCache(const Log& log);

  std::optional<std::string> find(const std::string& key) const;
  void add(const std::string& key, const std::string& code);

 private:
  std::string path_of(const std::string& key) const;

  std::string folder_;  // empty: nothing is kept
  bool is_readable_only_ = false;
  Log log_;
};

}  // namespace graphsink
