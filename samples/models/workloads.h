// The models by name, at the sizes that graphsink-bench measures.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "samples/models/data.h"
#include "samples/models/text_model.h"

namespace graphsink::models {

struct WorkloadOptions {
  bool is_test_size = false;
  bool is_large_size = false;   // which only gpt has; then is_test_size is false
  int nodes = 1000;             // nodes of chain
  int crossings = 0;            // crossings of hetero beside those of the model itself; two for each op on the host
  bool counts_on_host = false;  // jacobi does so, see JacobiOptions
  std::string directory;        // with data, see data.h
  std::string text;             // a text file for the models of text
  std::uint64_t seed = 1;
  Sharing sharing = {};  // how the workloads that can_be_shared() are shared
};

// Whether WorkloadOptions::sharing has an effect: mlp and the models of text that are trained.
bool can_be_shared(std::string_view name);

struct WorkloadInfo {
  std::string_view name;
  std::string_view what;
};

// Makes models; data is read on first use and shared. Used by one thread at a time.
class Workloads {
 public:
  explicit Workloads(WorkloadOptions options) : options_(std::move(options)) {}

  static std::span<const WorkloadInfo> list();
  // A fresh model: the same options give the same bits. Throws Error for a name that list() does not have.
  Model make(std::string_view name);
  // The data that the model trains on; nullopt if it needs none.
  std::optional<Source> source(std::string_view name);

 private:
  const DigitData& digits();
  const TextData& text();
  TextModel text_model(std::string_view name);

  WorkloadOptions options_;
  std::optional<DigitData> digits_;
  std::optional<TextData> text_;
};

}  // namespace graphsink::models
