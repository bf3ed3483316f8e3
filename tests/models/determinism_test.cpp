// The same bits whenever the same thing is run: every op of the op table with its gradients, and the workloads of
// graphsink-bench, in all modes by turns, and on the software device with threads in another order each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/vector_level.h"
#include "program_fixture.h"
#include "samples/models/workloads.h"
#include "tests/op_table/op_case.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::determinism_test {
namespace {

using testing::kModes;
using testing::OpCase;
using testing::OpRow;

// Runs of each op and workload that have to give the same bits.
std::size_t runs() { return std::getenv("GS_FULL") ? 20 : 4; }
constexpr std::int64_t kSteps = 3;

// FNV-1a.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (std::byte byte : bytes) value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  void add(const Tensor& x) { add(std::span(x.data(), x.bytes())); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

// The mode of a run, before it.
Mode begin_run(std::size_t run) {
#ifdef GRAPHSINK_EMULATED
  emu::set_seed(run);
#endif
  return kModes[run % std::size(kModes)];
}

class Determinism : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Determinism, ::testing::ValuesIn(testing::devices()), testing::device_name);

// The case with the most elements is the one that the most threads share.
const testing::Case& largest_case(const OpRow& row) {
  auto elements = [](const testing::Case& operands) {
    std::int64_t sum = 0;
    for (const testing::Operand& operand : operands) sum += operand.shape.size();
    return sum;
  };
  return *std::max_element(row.cases.begin(), row.cases.end(),
                           [&](const auto& a, const auto& b) { return elements(a) < elements(b); });
}

// Two processes can be compared by what this prints, see vector_levels_test.sh.
void print_hash(const std::string& device, const char* what, std::uint64_t hash) {
  std::cout << "bits of " << what << " on " << device << ": " << std::hex << hash << std::dec << ", vectors "
            << to_string(vector_level()) << '\n';
}

TEST_P(Determinism, OpsAndTheirGradients) {
  const std::size_t count = runs();
  Hash all;
  for (const OpRow& row : testing::op_table()) {
    SCOPED_TRACE(row.name);
    OpCase it(row, largest_case(row), row.dtypes.front(), false);
    Program program = compile(it.graph);
    std::uint64_t first = 0;
    for (std::size_t run = 0; run < count; ++run) {
      program.run(begin_run(run));
      Hash hash;
      hash.add(program.output("y"));
      for (std::size_t i = 0; i < it.values.size(); ++i)
        if (it.has_gradient(i)) hash.add(program.output("g" + std::to_string(i)));
      if (run == 0) first = hash.value();
      ASSERT_EQ(hash.value(), first) << "run " << run;
    }
    all.add(std::as_bytes(std::span(&first, 1)));
  }
  print_hash(to_string(GetParam()), "ops", all.value());
}

TEST_P(Determinism, StepsOfWorkloads) {
  const std::size_t count = runs();
  Hash all;
  models::WorkloadOptions options;
  options.is_test_size = true;
  options.nodes = 20;
  models::Workloads workloads(options);
  for (const models::WorkloadInfo& info : models::Workloads::list()) {
    SCOPED_TRACE(info.name);
    models::Model model = workloads.make(info.name);
    std::vector<Tensor> start;
    for (const Variable& variable : model.variables) start.push_back(variable.read());
    Program program = compile(model.graph);
    std::uint64_t first = 0;
    for (std::size_t run = 0; run < count; ++run) {
      for (std::size_t i = 0; i < start.size(); ++i) model.variables[i].write(start[i]);
      program.set_steps(0);
      models::run(program, model, begin_run(run), 0, kSteps);
      Hash hash;
      std::vector<float> losses = program.records("loss");
      ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
      hash.add(std::as_bytes(std::span(losses)));
      for (const Variable& variable : model.variables) hash.add(variable.read());
      if (run == 0) first = hash.value();
      ASSERT_EQ(hash.value(), first) << "run " << run;
    }
    all.add(std::as_bytes(std::span(&first, 1)));
  }
  print_hash(to_string(GetParam()), "workloads", all.value());
}

}  // namespace
}  // namespace graphsink::determinism_test
