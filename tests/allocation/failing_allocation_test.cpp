// Whichever allocation fails while a program is built, run, saved and destroyed: the caller gets an exception, the same
// call succeeds when there is memory again, the numbers are right, and nothing leaks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "counted_new.h"
#include "graphsink/graphsink.h"
#include "temporary_directory.h"

#if defined(GRAPHSINK_EMULATED)
#include "emulator.h"
#endif

namespace graphsink::failing_allocation_test {
namespace {

using testing::FailingAllocation;

constexpr std::int64_t kSteps = 5;
constexpr Mode kModes[kSteps] = {interactive_serial, interactive_parallel, sink, sink, automatic};

// What a run of the whole computes.
struct Result {
  std::vector<float> losses;
  std::vector<double> weights;
  bool operator==(const Result&) const = default;
};

// A training with a loop, a branch and records, from the first node to the end of the program. Each part may be called
// again after it has thrown.
class Cycle {
 public:
  Cycle(DeviceId target, std::filesystem::path file) : target_(target), file_(std::move(file)) {}

  struct Part {
    const char* name;
    void (Cycle::*run)();
  };
  static constexpr int kParts = 9;
  static const Part parts[kParts];

  Result result() const { return {losses_, loaded_}; }

 private:
  void build() {
    graph_.emplace();
    Graph& g = *graph_;
    x_ = g.input("x", f32, {4, 6});
    weights_ = {Variable("w", Tensor::uniform({6, 3}, 1, -1.0f, 1.0f)), Variable("b", Tensor(f32, {3}))};
    Value y = tanh(matmul(x_, g.value(weights_[0])) + g.value(weights_[1]));
    auto [sum_of, n] = while_(
        {mean(y), 0}, [](Value, Value n) { return n < 3; },
        [](Value s, Value n) {
          return std::array<Value, 2>{s * 0.5 + 1.0, n + 1};
        },
        {.max_iterations = 3});
    (void)n;
    Value loss = if_(
        sum_of > 0.0, [&] { return sum(y * y); }, [&] { return sum(y); });
    adamw(loss, weights_);
    g.record("loss", loss);
  }
  void compile() {
    program_.reset();
    program_.emplace(graphsink::compile(*graph_, {.target = target_, .seed = 3, .tuning = {.threads = 2}}));
  }
  void write() { program_->write(x_, Tensor::uniform({4, 6}, 2, -1.0f, 1.0f)); }
  void run() {
    while (program_->steps() < kSteps) program_->run(kModes[program_->steps()]);
    program_->sync();
  }
  void read() { losses_ = program_->records("loss"); }
  void save() { write_checkpoint(file_, snapshot(*program_)); }
  void overwrite() {
    for (Variable& w : weights_) w.write(Tensor(f32, w.type().shape));
  }
  void load() {
    restore(*program_, read_checkpoint(file_));
    loaded_.clear();
    for (const Variable& w : weights_) loaded_.push_back(w.read().at(0));
  }
  void destroy() {
    program_.reset();
    graph_.reset();
  }

  DeviceId target_;
  std::filesystem::path file_;
  std::optional<Graph> graph_;
  Value x_;
  std::vector<Variable> weights_;
  std::optional<Program> program_;
  std::vector<float> losses_;
  std::vector<double> loaded_;
};
const Cycle::Part Cycle::parts[kParts] = {
    {"build", &Cycle::build},    {"compile", &Cycle::compile}, {"write", &Cycle::write},         {"run", &Cycle::run},
    {"read", &Cycle::read},      {"save", &Cycle::save},       {"overwrite", &Cycle::overwrite}, {"load", &Cycle::load},
    {"destroy", &Cycle::destroy}};

// Of the device: streams, memory, graphs and the like.
std::size_t live_objects() {
#if defined(GRAPHSINK_EMULATED)
  return emu::live_objects().total();
#else
  return 0;
#endif
}

class FailingAllocations : public ::testing::TestWithParam<DeviceId> {
 protected:
  Result undisturbed() {
    Cycle cycle(GetParam(), file_);
    for (const Cycle::Part& part : Cycle::parts) (cycle.*part.run)();
    return cycle.result();
  }
  // Returns whether the part makes so many allocations.
  bool disturb(const Cycle::Part& disturbed, long number, const Result& expected) {
    SCOPED_TRACE(std::string(disturbed.name) + ", allocation " + std::to_string(number));
    const std::size_t before = live_objects();
    std::optional<Cycle> cycle(std::in_place, GetParam(), file_);
    bool has_failed = false;
    for (const Cycle::Part& part : Cycle::parts) {
      if (part.name == disturbed.name) {
        const FailingAllocation failing(number);
        try {
          ((*cycle).*part.run)();
        } catch (const std::bad_alloc&) {
        } catch (const Error& e) {
          EXPECT_NE(std::string(e.what()), "");
        }
        has_failed = failing.has_failed();
      }
      if (part.name == disturbed.name && !has_failed) continue;
      EXPECT_NO_THROW(((*cycle).*part.run)());
    }
    EXPECT_EQ(cycle->result(), expected);
    cycle.reset();
    EXPECT_EQ(live_objects(), before) << "something leaks";
    return has_failed;
  }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_ / "checkpoint.safetensors";
};

// With GS_FULL each one fails, else the first ones of each part and then every fortieth.
TEST_P(FailingAllocations, LeaveEverythingAsItWas) {
  const char* full = std::getenv("GS_FULL");
  const long stride = full && *full ? 1 : 40;
  const Result expected = undisturbed();
  for (const Cycle::Part& part : Cycle::parts) {
    long failed = 0;
    for (long number = 0; !HasFailure() && disturb(part, number, expected); number += number < 10 ? 1 : stride)
      ++failed;
    RecordProperty(part.name, std::to_string(failed));
  }
}

std::vector<DeviceId> targets() {
  std::vector<DeviceId> all = {cpu()};
  if (cuda_device_count() > 0) all.push_back(cuda(0));
  return all;
}
INSTANTIATE_TEST_SUITE_P(On, FailingAllocations, ::testing::ValuesIn(targets()), [](const auto& info) {
  return std::string(info.param.kind == DeviceKind::cpu ? "Cpu" : "Cuda");
});

}  // namespace
}  // namespace graphsink::failing_allocation_test
