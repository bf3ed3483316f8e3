// Writes what the tests of the Python package expect, as computed in C++:
//   python_expected op_table FILE         operands of rows of the op table, and the results of their references
//   python_expected NAME STEPS FILE       a workload at test size: its feeds and Variables, and the checksums of its
//   losses
//                                         and of what the Variables are then
// FILE becomes a safetensors file. A failure is printed, and the status is 1.
#include <charconv>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "samples/models/workloads.h"
#include "tests/op_table/op_case.h"

namespace graphsink::testing {
namespace {

// Larger cases test kernels, not bindings.
constexpr std::int64_t kMostElements = 600;
constexpr int kMostCases = 3;

std::int64_t elements_of(const Case& operands) {
  std::int64_t size = 0;
  for (const Operand& operand : operands) size += operand.shape.size();
  return size;
}

// The first cases of a row that are small, or the smallest.
std::vector<Case> small_cases(const OpRow& row) {
  std::vector<Case> found;
  const Case* smallest = &row.cases.front();
  for (const Case& operands : row.cases) {
    const std::int64_t size = elements_of(operands);
    if (size <= kMostElements && size > 0 && found.size() < kMostCases) found.push_back(operands);
    if (size < elements_of(*smallest)) smallest = &operands;
  }
  if (found.empty()) found.push_back(*smallest);
  return found;
}

// Names of tensors are "row/case/x0", with the number of the row in the table; the result in f64 is "row/case/y".
// The metadata name the op of each row, and the dtype and the scale of each result, which op_table_test.cpp explains.
Checkpoint op_table_cases() {
  Checkpoint made;
  const std::vector<OpRow> rows = op_table();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string row = std::to_string(i) + "/";
    made.metadata[row] = rows[i].name;
    int number = 0;
    for (DType dtype : rows[i].dtypes) {
      for (const Case& operands : small_cases(rows[i])) {
        const OpCase prepared(rows[i], operands, dtype, false);
        const std::string name = row + std::to_string(number++) + "/";
        for (std::size_t k = 0; k < prepared.arrays.size(); ++k)
          made.tensors.emplace(name + "x" + std::to_string(k), to_tensor(prepared.arrays[k], prepared.dtypes[k]));
        made.tensors.emplace(name + "y", to_tensor(rows[i].reference(prepared.arrays), f64));
        made.metadata[name + "dtype"] = std::string(to_string(prepared.output.dtype()));
        made.metadata[name + "terms"] = std::to_string(prepared.arrays[0].shape.size());
      }
    }
  }
  return made;
}

std::string bits_of(const std::vector<Variable>& variables) {
  std::string bits;
  for (const Variable& variable : variables) {
    const Tensor tensor = variable.read();
    bits.append(reinterpret_cast<const char*>(tensor.data()), tensor.bytes());
  }
  return bits;
}

// The Variables "initial/<name>", and the data of all steps for each feed. The checksums are those of graphsink-bench
// (profiling/trial.cpp), for a run of this many steps op by op.
Checkpoint workload(const std::string& name, std::int64_t steps) {
  Checkpoint made;
  models::WorkloadOptions options;
  options.is_test_size = true;
  models::Workloads workloads(std::move(options));
  made.metadata["steps"] = std::to_string(steps);
  std::vector<DeviceId> devices{cpu()};
  if (cuda_device_count() > 0) devices.push_back(cuda(0));
  for (DeviceId device : devices) {
    const models::Model model = workloads.make(name);
    for (const Variable& variable : model.variables)
      made.tensors.insert_or_assign("initial/" + variable.name(), variable.read());
    Program program = compile(model.graph, {.target = device, .tuning = model.tuning});
    models::run(program, model, interactive, 0, steps);
    const std::vector<double> losses = program.records<double>("loss");
    const std::string bits = bits_of(model.variables);
    made.metadata[to_string(device) + "/loss_hash"] = checksum(losses.data(), losses.size() * sizeof(double));
    made.metadata[to_string(device) + "/state_hash"] = checksum(bits.data(), bits.size());
    for (std::size_t i = 0; i < model.feeds.size(); ++i)
      made.tensors.insert_or_assign("feed" + std::to_string(i), model.feeds[i].slices(0, steps));
  }
  return made;
}

std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1)
    throw Error("STEPS", Where(), "\"" + std::string(text) + "\" is no number of steps", "give 1 or more");
  return number;
}

}  // namespace
}  // namespace graphsink::testing

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "op_table") {
    graphsink::write_checkpoint(arguments[1], graphsink::testing::op_table_cases());
  } else if (arguments.size() == 3) {
    const std::int64_t steps = graphsink::testing::number_of(arguments[1]);
    graphsink::write_checkpoint(arguments[2], graphsink::testing::workload(arguments[0], steps));
  } else {
    std::cerr << "usage: python_expected op_table FILE | python_expected WORKLOAD STEPS FILE\n";
    return 1;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
