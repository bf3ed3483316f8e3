// Error::code() of each kind of failure, on every device.
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "graphsink/checkpoint.h"
#include "graphsink/loader.h"
#include "program_fixture.h"
#include "temporary_directory.h"

namespace graphsink::error_code_test {
namespace {

using testing::device_name;
using testing::OnDevice;

void throws(const CpuArgs&) { throw Error("store", Where(), "the disk is full", "make room", ErrorCode::io); }
const OpDef throwing_op{.name = "throwing", .infer = testing::infer_like_first, .bodies = {throws}};

struct Row {
  const char* name;
  ErrorCode code;
  std::function<void(DeviceId)> act;
};

void run(const Graph& g, DeviceId device, bool check_finite = false) {
  Program program = compile(g, {.target = device, .check_finite = check_finite});
  program.run();
  program.sync();
}

const Row kRows[] = {
    {"AMissingWrite", ErrorCode::misuse,
     [](DeviceId device) {
       Graph g;
       g.output("y", g.input("x", f32, {3}) + 1.0);
       run(g, device);
     }},
    {"AProgramThatIsTooLarge", ErrorCode::out_of_memory,
     [](DeviceId device) {
       Graph g;
       Value x = g.value(Variable("x", Tensor({1.0f})));
       g.output("y", pad(x, {0}, {std::int64_t{1} << 45}));
       run(g, device);
     }},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers end the process at such a request
    {"ATensorThatIsTooLarge", ErrorCode::out_of_memory, [](DeviceId) { Tensor(f64, {std::int64_t{1} << 46}); }},
#endif
    {"ADeviceThatIsNotThere", ErrorCode::unavailable, [](DeviceId) { compile(Graph(), {.target = cuda(99)}); }},
    {"AnIndexOutOfRange", ErrorCode::step_failed,
     [](DeviceId device) {
       Graph g;
       Value table = g.value(Variable("table", Tensor::uniform({3, 2}, 1)));
       g.output("y", gather(table, g.step() + 7));
       run(g, device);
     }},
    {"ANumberThatIsNotFinite", ErrorCode::step_failed,
     [](DeviceId device) {
       Graph g;
       g.output("y", log(g.value(Variable("x", Tensor({0.0f})))));
       run(g, device, true);
     }},
    {"ABodyThatThrows", ErrorCode::step_failed,
     [](DeviceId device) {
       Graph g;
       g.output("y", emit(throwing_op, {g.value(Variable("x", Tensor({0.0f})))})[0]);
       run(g, device);
     }},
    {"AConditionToStop", ErrorCode::stopped,
     [](DeviceId device) {
       Graph g;
       g.stop_when(g.step() >= 0);
       run(g, device);
     }},
    {"AFileThatIsNotThere", ErrorCode::io, [](DeviceId) { read_checkpoint("no/such/file"); }},
    {"AFolderThatIsNotThere", ErrorCode::io, [](DeviceId) { write_checkpoint("no/such/folder/file", {}); }},
    {"ACheckpointOfAnotherModel", ErrorCode::io,
     [](DeviceId device) {
       TemporaryDirectory directory;
       Variable x("x", Tensor({1.0f, 2.0f}));
       Graph g;
       assign(x, g.value(x) + 1.0);
       Program program = compile(g, {.target = device});
       Checkpoint other;
       other.tensors["x"] = Tensor({1.0f});
       write_checkpoint(directory / "file", other);
       restore(program, read_checkpoint(directory / "file"));
     }},
    {"DigitsThatAreNotThere", ErrorCode::io, [](DeviceId) { read_digits("no/such/folder"); }},
};

class ErrorCodes : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, ErrorCodes, ::testing::ValuesIn(testing::devices()), device_name);

TEST_P(ErrorCodes, TellKindsOfFailureApart) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    try {
      row.act(GetParam());
      ADD_FAILURE() << "no Error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), row.code) << to_string(e.code()) << ": " << e.what();
    }
  }
}

TEST(ErrorCodes, HaveNames) {
  EXPECT_EQ(to_string(ErrorCode::misuse), "misuse");
  EXPECT_EQ(to_string(ErrorCode::unavailable), "unavailable");
  EXPECT_EQ(to_string(ErrorCode::out_of_memory), "out_of_memory");
  EXPECT_EQ(to_string(ErrorCode::device_lost), "device_lost");
  EXPECT_EQ(to_string(ErrorCode::step_failed), "step_failed");
  EXPECT_EQ(to_string(ErrorCode::io), "io");
  EXPECT_EQ(to_string(ErrorCode::stopped), "stopped");
}

}  // namespace
}  // namespace graphsink::error_code_test
