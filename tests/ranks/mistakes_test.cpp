// Mistakes by which a rank leaves the others. Each is a program of its own, which mistakes.py starts by mpirun or
// start.py: the ranks print what they see. Rank 1 makes the mistake.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"
#include "test_ops.h"

#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::testing {
namespace mistakes_test {

// Ranks that do not come are waited for so long.
const Comm& comm() {
  static const Comm comm = [] {
    if (!nccl_is_chosen()) return graphsink::world({.patience_s = 4});
    name_nccl_standin();
    return nccl_world({.patience_s = 4});
  }();
  return comm;
}
bool is_bad() { return comm().rank() == 1; }

void say(const std::string& text) {
  std::cout << "<rank " + std::to_string(comm().rank()) + ": " + text + ">\n" << std::flush;
}

// Calls it, and says what it throws.
void say_error(const std::string& when, const std::function<void()>& call) {
  try {
    call();
    say(when + ": no error");
  } catch (const Error& e) {
    say(when + ": " + std::string(to_string(e.code())) + ": " + e.what());
  }
}

// Until mistakes.py ends all ranks: mpirun would end the others as soon as one has ended, and MPI and the destructors
// of programs would wait for ranks that do not come. Ranks that were started by variables end in order.
void wait() {
  while (std::getenv("RANK") == nullptr) pause();
}

// A rank that ends may take along what it has sent just before. When it has passed a barrier, the others have heard all
// that it sent in the step before.
void begin_step(const char* name) {
  if (std::string_view(name) != "first step") comm().barrier();
}

// A read throws for a lost rank if no step has: where a rank takes along what it has sent before, a barrier has told
// so.
int committed(const Variable& count) {
  try {
    return static_cast<int>(count.read().at(0));
  } catch (const Error&) {
    return static_cast<int>(count.read().at(0));
  }
}

// Three steps with a collective and an op of the host in front of it, which is called with the number of the step.
void run_steps(const DeviceId& device, const std::function<void(int)>& host) {
  Graph g;
  ExternalOp op{.name = "host", .outputs = {{f32, {2}}}};
  op.cpu = [&](const CpuArgs& a) {
    host(static_cast<int>(a.in<float>(0)[0]));
    a.out<float>(0)[0] = a.out<float>(0)[1] = 1;
  };
  Variable count("count", Tensor::scalar(0.0f));
  const Value step = g.value(count);
  g.output("y", all_reduce(external_op(op, {step})[0], comm()));
  g.assign(count, add(step, 1.0));
  Program program = compile(g, {.target = device});
  for (const char* name : {"first step", "second step", "third step"})
    say_error(name, [&] {
      begin_step(name);
      program.run(sink);
      program.sync();
    });
  say("committed " + std::to_string(committed(count)));
  wait();
}

std::function<void(int)> in_second_step(const std::function<void()>& mistake) {
  return [mistake](int step) {
    if (step == 1 && is_bad()) mistake();
  };
}

class Mistake : public OnRanks {
 protected:
  static const DeviceId& device() { return GetParam().device; }
};
INSTANTIATE_TEST_SUITE_P(Devices, Mistake, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(Mistake, DISABLED_Throws) {
  run_steps(device(), in_second_step([] { throw std::runtime_error("no more of that"); }));
}
TEST_P(Mistake, DISABLED_RunsOutOfMemory) {
  run_steps(device(), in_second_step([] { throw std::bad_alloc(); }));
}
TEST_P(Mistake, DISABLED_IsKilled) {
  run_steps(device(), in_second_step([] { raise(SIGKILL); }));
}
TEST_P(Mistake, DISABLED_Stalls) {
  run_steps(device(), in_second_step([] { sleep(3600); }));
}
TEST_P(Mistake, DISABLED_Exits) {
  run_steps(device(), in_second_step([] { _exit(0); }));
}

// An Eager on a device exchanges values by NCCL alone.
DeviceId eager_device() { return nccl_is_chosen() ? cuda(0) : cpu(); }

// The collectives of an Eager are not compared beforehand.
TEST_P(Mistake, DISABLED_CallsAnotherCollective) {
  say_error("eager", [] {
    Eager eager(eager_device());
    const Value x = eager.tensor(Tensor::full(f32, {4}, 1.0));
    (void)Eager::read(is_bad() ? broadcast(x, comm()) : all_reduce(x, comm()));
    (void)Eager::read(all_gather(x, comm()));
    comm().barrier();
  });
  wait();
}

TEST_P(Mistake, DISABLED_LeavesOneOut) {
  say_error("eager", [] {
    Eager eager(eager_device());
    const Value x = eager.tensor(Tensor::full(f32, {4}, 1.0));
    if (!is_bad()) (void)Eager::read(all_reduce(x, comm()));
    comm().barrier();
  });
  wait();
}

bool is_greedy = false;
Prepared prepare_little(const PrepareArgs&) {
  if (is_greedy) throw Error("greedy", Where(), "there is no memory for it", "use less", ErrorCode::out_of_memory);
  return {};
}
const OpDef greedy_op{.name = "greedy",
                      .infer = infer_like_first,
                      .prepare = prepare_little,
                      .bodies = {[](const CpuArgs& a) { a.out<float>(0)[0] = a.in<float>(0)[0]; }}};

// A program that is bound twice: rank 1 cannot at first.
void bind_twice(const DeviceId& device, const std::function<void(bool)>& set_mistake) {
  Graph g;
  const Value x = g.input("x", f32, Shape{1});
  g.output("y", all_reduce(emit(greedy_op, {x})[0], comm()));
  Program program = compile(g, {.target = device});
  program.write(x, Tensor::full(f32, {1}, 1.0));
  for (const bool is_first : {true, false}) {
    if (is_bad()) set_mistake(is_first);
    say_error(is_first ? "bind" : "bind again", [&] {
      program.run(sink);
      program.sync();
    });
  }
  say("sum " + std::to_string(static_cast<int>(program.output("y").at(0))));
  wait();
}

// The others have given up then.
TEST_P(Mistake, DISABLED_ComesLate) {
  (void)comm();
  const auto come = [] { say_error("barrier", [] { comm().barrier(); }); };
  if (!is_bad()) come();
  world_of_host().barrier();
  if (is_bad()) come();
  wait();
}

TEST_P(Mistake, DISABLED_CannotBind) {
  bind_twice(device(), [](bool is_wrong) { is_greedy = is_wrong; });
}

#ifdef GRAPHSINK_EMULATED
class MistakeOnDevice : public Mistake {};
std::vector<RankWay> ways_on_devices() {
  std::vector<RankWay> ways = rank_ways();
  std::erase_if(ways, [](const RankWay& way) { return way.device.kind == DeviceKind::cpu; });
  return ways;
}
INSTANTIATE_TEST_SUITE_P(Devices, MistakeOnDevice, ::testing::ValuesIn(ways_on_devices()), rank_way_name);

TEST_P(MistakeOnDevice, DISABLED_LacksDeviceMemory) {
  bind_twice(device(), [](bool is_wrong) {
    emu::clear_faults();
    for (const char* call : {"cudaMalloc", "cuMemCreate"})
      if (is_wrong) emu::fail(call, 1, cudaErrorMemoryAllocation, true);
  });
}
#endif

// The work of one rank cannot be captured, so that the host issues it op by op.
TEST_P(Mistake, DISABLED_CannotCapture) {
  Graph g;
  const Value x = g.input("x", f32, Shape{1});
  ExternalOp op{.name = "waits", .outputs = {{f32, {1}}}, .traits = {.capturable = false}};
  op.cpu = [](const CpuArgs& a) { a.out<float>(0)[0] = a.in<float>(0)[0]; };
  g.output("y", all_reduce(is_bad() ? external_op(op, {x})[0] : x, comm()));
  Program program = compile(g, {.target = device()});
  program.write(x, Tensor::full(f32, {1}, 1.0));
  say_error("uncaptured", [&] {
    program.run(sink);
    program.sync();
  });
  say("sum " + std::to_string(static_cast<int>(program.output("y").at(0))));
  wait();
}

}  // namespace mistakes_test
}  // namespace graphsink::testing
