// Checkpoints: the file's bytes, what comes back, what does not fit.
#include "graphsink/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>

#include "graphsink/graphsink.h"
#include "messages.h"
#include "temporary_directory.h"
#include "test_ops.h"

namespace graphsink::checkpoint_test {
namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

Checkpoint example() {
  Checkpoint checkpoint;
  checkpoint.tensors.emplace("bias", Tensor({1.5f, -2.0f, 0.0f}));
  checkpoint.tensors.emplace("mask", Tensor({true, false, true}));
  checkpoint.tensors.emplace("moment", Tensor(Shape{2, 1}, std::vector<double>{0.25, 1e300}));
  checkpoint.tensors.emplace("empty", Tensor(i32, {0, 3}));
  checkpoint.tensors.emplace("scalar", Tensor::scalar<std::int32_t>(-7));
  checkpoint.metadata["step"] = "12";
  return checkpoint;
}

TEST(CheckpointFile, ComesBackBitForBit) {
  TemporaryDirectory directory;
  Checkpoint written = example();
  write_checkpoint(directory / "a.safetensors", written);
  Checkpoint read = read_checkpoint(directory / "a.safetensors");
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (const auto& [name, tensor] : written.tensors) EXPECT_TRUE(same(read.tensors.at(name), tensor)) << name;
  EXPECT_EQ(read.metadata, written.metadata);
  EXPECT_EQ(read.number("step"), 12);
  EXPECT_EQ(read.source, (directory / "a.safetensors").string());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1) << "something was left over";
  write_checkpoint(directory / "b.safetensors", read);
  EXPECT_EQ(bytes_of(directory / "a.safetensors"), bytes_of(directory / "b.safetensors"));
}

// By hand, from the description of the format.
TEST(CheckpointFile, HasTheBytesOfTheFormat) {
  TemporaryDirectory directory;
  Checkpoint checkpoint;
  checkpoint.tensors.emplace("b", Tensor({true}));
  checkpoint.tensors.emplace("w", Tensor(Shape{1, 2}, std::vector<float>{1.0f, 2.0f}));
  checkpoint.metadata["k"] = "v";
  write_checkpoint(directory / "file", checkpoint);
  std::string json = R"({"__metadata__":{"k":"v"},"b":{"data_offsets":[8,9],"dtype":"BOOL","shape":[1]},)"
                     R"("w":{"data_offsets":[0,8],"dtype":"F32","shape":[1,2]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string expected{static_cast<char>(json.size()), 0, 0, 0, 0, 0, 0, 0};
  expected += json;
  expected += std::string("\x00\x00\x80\x3f\x00\x00\x00\x40\x01", 9);
  EXPECT_EQ(bytes_of(directory / "file"), expected);
}

void write_header(const std::filesystem::path& path, const std::string& json, const std::string& data = "") {
  std::string size(8, '\0');
  for (std::size_t i = 0; i < 4; ++i) size[i] = static_cast<char>(json.size() >> (8 * i) & 255);
  std::ofstream(path, std::ios::binary) << size << json << data;
}

TEST(CheckpointFile, NullAsMetadataIsNone) {
  TemporaryDirectory directory;
  write_header(directory / "file", R"({"__metadata__":null,"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
               "\x01\x02");
  const Checkpoint read = read_checkpoint(directory / "file");
  EXPECT_TRUE(read.metadata.empty());
  EXPECT_EQ(read.tensors.at("w").at(1), 2);
}

TEST(CheckpointFile, TensorsOfForeignDtypesAreNamedAndTheOthersLoaded) {
  TemporaryDirectory directory;
  write_header(directory / "file",
               R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I16","shape":[3],"data_offsets":)"
               R"([2,8]},"c":{"dtype":"F4","shape":[2],"data_offsets":[8,9]},)"
               R"("d":{"dtype":"BOOL","shape":[],"data_offsets":[9,10]}})",
               std::string("\x05\x06......!\x01"));
  const Checkpoint read = read_checkpoint(directory / "file");
  EXPECT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors.at("a").at(1), 6);
  EXPECT_EQ(read.tensors.at("d").at(0), 1);
  EXPECT_EQ(read.unsupported, (decltype(read.unsupported){{"b", "I16"}, {"c", "F4"}}));
  try {
    write_checkpoint(directory / "again", read);
    FAIL() << "tensors would have been lost";
  } catch (const Error& e) {
    EXPECT_EQ(e.problem(), "tensor \"b\" was not loaded, because its dtype is I16");
  }
}

TEST(CheckpointFile, WhatIsWrittenCanBeRead) {
  TemporaryDirectory directory;
  Checkpoint odd;
  odd.tensors.emplace(std::string("\x01\n\0\"\\\x7f \xc3\xa4", 10), Tensor({1.0f}));
  odd.tensors.emplace("", Tensor(f32, {0, std::int64_t{1} << 60}));
  odd.tensors.emplace("Z before the metadata", Tensor({true}));
  odd.metadata[""] = std::string("\0\x1f", 2);
  write_checkpoint(directory / "odd", odd);
  const Checkpoint read = read_checkpoint(directory / "odd");
  EXPECT_EQ(read.metadata, odd.metadata);
  ASSERT_EQ(read.tensors.size(), odd.tensors.size());
  for (const auto& [name, tensor] : odd.tensors) EXPECT_TRUE(same(read.tensors.at(name), tensor)) << name;

  Checkpoint bad;
  Tensor& mask = bad.tensors.emplace("mask", Tensor({true, true})).first->second;
  std::memset(mask.data(), 2, 1);
  EXPECT_THROW(write_checkpoint(directory / "bad", bad), Error);
  for (const char* foreign : {"\xff", "\xed\xa0\x80"}) {
    Checkpoint name, key, text;
    name.tensors.emplace(foreign, Tensor({1.0f}));
    key.metadata[foreign] = "";
    text.metadata["key"] = foreign;
    for (const Checkpoint* checkpoint : {&name, &key, &text})
      EXPECT_THROW(write_checkpoint(directory / "bad", *checkpoint), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(directory / "bad"));
}

TEST(CheckpointFile, ANumberInTheMetadataIsWholeOrAnError) {
  Checkpoint checkpoint;
  for (const char* text : {"", "-1", "1.5", "12 ", "9223372036854775808"}) {
    checkpoint.metadata["step"] = text;
    EXPECT_THROW(checkpoint.number("step"), Error) << text;
  }
  EXPECT_THROW(checkpoint.number("other"), Error);
  checkpoint.metadata["step"] = "9223372036854775807";
  EXPECT_EQ(checkpoint.number("step"), std::numeric_limits<std::int64_t>::max());
}

TEST(Restore, WritesVariablesByName) {
  Variable w("w", Tensor({1.0f, 2.0f})), n("n", Tensor::scalar<std::int32_t>(3));
  std::vector<Variable> variables{w, n};
  Checkpoint checkpoint = snapshot(variables);
  w.write(Tensor({5.0f, 6.0f}));
  n.write(Tensor::scalar<std::int32_t>(7));
  Restored restored = restore(variables, checkpoint);
  EXPECT_EQ(restored.loaded, (std::vector<std::string>{"w", "n"}));
  EXPECT_EQ(w.read().at(1), 2.0);
  EXPECT_EQ(n.read().at(0), 3.0);
}

TEST(Restore, TakesASubsetOnlyWhenAllowed) {
  Variable w("w", Tensor({1.0f})), other("other", Tensor({2.0f}));
  Checkpoint checkpoint;
  checkpoint.tensors.emplace("w", Tensor({9.0f}));
  checkpoint.tensors.emplace("unused", Tensor({8.0f}));
  std::vector<Variable> variables{w, other};
  EXPECT_THROW(restore(variables, checkpoint, {.allow_missing = true}), Error);
  EXPECT_THROW(restore(variables, checkpoint, {.allow_unused = true}), Error);
  EXPECT_EQ(w.read().at(0), 1.0);
  Restored restored = restore(variables, checkpoint, {.allow_missing = true, .allow_unused = true});
  EXPECT_EQ(restored.missing, std::vector<std::string>{"other"});
  EXPECT_EQ(restored.unused, std::vector<std::string>{"unused"});
  EXPECT_EQ(w.read().at(0), 9.0);
  EXPECT_EQ(other.read().at(0), 2.0);
}

TEST(Restore, OfAForeignDtypeIsRefusedUnlessItIsUnusedAndAllowed) {
  Variable w("w", Tensor({1.0f})), b("b", Tensor({2.0f}));
  Checkpoint checkpoint;
  checkpoint.tensors.emplace("w", Tensor({9.0f}));
  checkpoint.unsupported["b"] = "I16";
  EXPECT_THROW(restore(std::vector{w}, checkpoint), Error);
  EXPECT_EQ(restore(std::vector{w}, checkpoint, {.allow_unused = true}).unused, std::vector<std::string>{"b"});
  EXPECT_EQ(w.read().at(0), 9.0);
  try {
    restore(std::vector{w, b}, checkpoint, {.allow_missing = true, .allow_unused = true});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.problem(), "tensor \"b\", dtype: expected f32[1], seen I16, which this library does not have");
  }
}

// Names of files may have any length.
TEST(Restore, MessagesShortenNames) {
  const std::string name(100'000, 'A');
  Checkpoint checkpoint;
  checkpoint.tensors.emplace(name, Tensor({9.0f}));
  checkpoint.metadata["step"] = name;
  std::vector<Variable> none, same{Variable(name, Tensor({1.0f, 2.0f}))};
  const std::vector<std::function<void()>> calls = {[&] { restore(none, checkpoint); },
                                                    [&] { restore(same, checkpoint); },
                                                    [&] { restore(same, {}); },
                                                    [&] { checkpoint.number("step"); },
                                                    [&] { checkpoint.number(name); },
                                                    [&] {
                                                      same.emplace_back(name, Tensor({1.0f}));
                                                      snapshot(same);
                                                    }};
  for (const auto& call : calls) {
    try {
      call();
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_LT(std::string(e.what()).size(), 500u);
    }
  }
}

TEST(Restore, ConvertsDtypesOnlyWhenAllowed) {
  Variable w("w", Tensor({1.0f, 2.0f}));
  Checkpoint checkpoint;
  checkpoint.tensors.emplace("w", Tensor({0.5, -3.25}));
  EXPECT_THROW(restore(std::vector{w}, checkpoint), Error);
  Restored restored = restore(std::vector{w}, checkpoint, {.convert = true});
  EXPECT_EQ(restored.converted, std::vector<std::string>{"w"});
  EXPECT_EQ(w.read().at(1), -3.25);
}

// The second Variable does not fit, so the first keeps its value.
TEST(Restore, RefusesAnotherModelBeforeAnythingChanges) {
  Variable a("a", Tensor({1.0f})), b("b", Tensor({2.0f, 3.0f}));
  Checkpoint checkpoint;
  checkpoint.source = "models/old.safetensors";
  checkpoint.tensors.emplace("a", Tensor({9.0f}));
  checkpoint.tensors.emplace("b", Tensor({9.0f}));
  try {
    restore(std::vector{a, b}, checkpoint);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("models/old.safetensors: tensor \"b\", shape: expected f32[2], seen f32[1]"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(a.read().at(0), 1.0);
}

TEST(Restore, RefusesTwoVariablesOfOneName) {
  Variable a("w", Tensor({1.0f})), b("w", Tensor({2.0f}));
  EXPECT_THROW(snapshot(std::vector{a, b}), Error);
  EXPECT_EQ(snapshot(std::vector{a, a}).tensors.size(), 1u);
}

// Training resumed from a file equals training that was never interrupted.
TEST(Restore, AResumedProgramGoesOnBitForBit) {
  struct Training {
    Graph graph;
    Variable w{"w", Tensor::uniform({3, 4}, 1)};
    Optimizer optimizer;
    std::unique_ptr<Program> program;

    Training() {
      Value loss = mean(dropout(tanh(graph.value(w)), 0.5) + cast(graph.step(), f32));
      optimizer = adamw(loss, {w});
      graph.record("loss", loss);
      program = std::make_unique<Program>(compile(graph));
    }
  };
  TemporaryDirectory directory;
  Training undisturbed;
  undisturbed.program->run(sink, {.steps = 7});
  Training first;
  first.program->run(sink, {.steps = 3});
  write_checkpoint(directory / "run", snapshot(*first.program));

  Training second;
  std::vector<Variable> variables = second.program->variables();
  EXPECT_EQ(variables.size(), second.optimizer.variables().size() + 1);
  Restored restored = restore(*second.program, read_checkpoint(directory / "run"));
  EXPECT_EQ(restored.loaded.size(), variables.size());
  EXPECT_EQ(second.program->steps(), 3);
  second.program->run(sink, {.steps = 4});
  for (std::size_t i = 0; i < variables.size(); ++i)
    EXPECT_TRUE(same(variables[i].read(), undisturbed.program->variables()[i].read())) << variables[i].name();
  std::vector<float> losses = undisturbed.program->records("loss");
  EXPECT_EQ(second.program->records("loss"), std::vector<float>(losses.begin() + 3, losses.end()));
  EXPECT_THROW(second.program->set_steps(-1), Error);
}

// w += x, which fails for an x that is not finite.
struct Sum {
  Graph graph;
  Value x = graph.input("x", f32, {1});
  Variable w{"w", Tensor({1.0f})};
  std::vector<std::string> log;

  Sum() { assign(w, graph.value(w) + check_finite(x)); }
  RestoreOptions options() {
    return {.log = [this](LogLevel, std::string_view message) { log.emplace_back(message); }};
  }
  void run(Program& p, float by) {
    p.write(x, std::vector<float>{by});
    p.run();
  }
};

TEST(Restore, OfAProgramNeedsAStepUnlessToldOtherwise) {
  Sum sum;
  Program p = compile(sum.graph);
  sum.run(p, 2);
  Checkpoint without = snapshot(std::vector{sum.w});
  sum.run(p, 2);
  for (const char* step : {"", "-1", "2147483648"}) {
    if (*step) without.metadata["step"] = step;
    EXPECT_THROW(restore(p, without), Error) << step;
    EXPECT_EQ(sum.w.read().at(0), 5.0) << "written before all was checked";
  }
  restore(p, without, {.without_step = true});
  EXPECT_EQ(sum.w.read().at(0), 3.0);
  EXPECT_EQ(p.steps(), 2);
}

TEST(Restore, ReplacesTheStateBehindAFailedStep) {
  Sum sum;
  Program p = compile(sum.graph);
  sum.run(p, 2);
  Checkpoint good = snapshot(p);
  sum.run(p, std::numeric_limits<float>::infinity());
  EXPECT_THROW((void)snapshot(p), Error);
  sum.run(p, std::numeric_limits<float>::infinity());
  restore(p, good, sum.options());
  ASSERT_EQ(sum.log.size(), 1u);
  EXPECT_NE(sum.log[0].find("element 0 is not finite"), std::string::npos) << sum.log[0];
  sum.run(p, 4);
  p.sync();
  EXPECT_EQ(sum.w.read().at(0), 7.0);
  EXPECT_EQ(p.steps(), 2);
}

TEST(Restore, HoldsTheProgram) {
  Sum sum;
  Program p = compile(sum.graph);
  const Checkpoint begin = snapshot(p);
  sum.run(p, std::numeric_limits<float>::infinity());
  std::string refused;
  restore(p, begin, {.log = [&](LogLevel, std::string_view) {
            std::thread([&] { refused = testing::message_of([&] { (void)p.steps(); }); }).join();
          }});
  EXPECT_TRUE(testing::contains(refused, "Program: another thread is in a call of it")) << refused;
}

// Calls the function, and passes on its input.
struct CallAttrs {
  std::function<void()> call;
};
const OpDef call_op{.name = "call", .infer = testing::infer_like_first, .bodies = {[](const CpuArgs& a) {
                                                                          a.attrs<CallAttrs>().call();
                                                                          *a.out<float>(0) = *a.in<float>(0);
                                                                        }}};

// It waits for another program, which has the Variable, and sees meanwhile that nobody may give steps to this one.
TEST(Snapshot, HoldsTheProgram) {
  const Variable w("w", Tensor::scalar(1.0f));
  Graph one, other;
  assign(w, one.value(w) * 3.0f);
  Program p = compile(one);
  std::atomic<bool> has_begun = false;
  std::string refused;
  const auto see = [&] {
    has_begun = true;
    const auto begun = std::chrono::steady_clock::now();
    for (int in_a_row = 0; in_a_row < 1000;) {
      refused = testing::message_of([&] { (void)p.steps(); });
      in_a_row = testing::contains(refused, "Program: another thread is in a call of it") ? in_a_row + 1 : 0;
      if (std::chrono::steady_clock::now() - begun > std::chrono::seconds(60)) return;
      std::this_thread::yield();
    }
  };
  assign(w, emit(call_op, {other.value(w)}, CallAttrs{see})[0] + 1.0f);
  Program q = compile(other);
  std::thread running([&] { q.run(), q.sync(); });
  while (!has_begun) std::this_thread::yield();
  std::optional<Checkpoint> copy;
  while (!copy) {
    (void)testing::message_of([&] { copy = snapshot(p); });  // the other thread may be in its call
  }
  EXPECT_EQ(copy->tensors.at("w").at(0), 2.0);
  running.join();
  EXPECT_TRUE(testing::contains(refused, "another thread"))
      << "for a minute, not a thousand times in a row: " << refused;
}

TEST(Restore, OfVariablesAloneWarnsThatTheStepStays) {
  Sum sum;
  Program p = compile(sum.graph);
  sum.run(p, 2);
  restore(std::vector{sum.w}, snapshot(p), sum.options());
  ASSERT_EQ(sum.log.size(), 1u);
  EXPECT_NE(sum.log[0].find("the checkpoint has step 1"), std::string::npos) << sum.log[0];
  restore(std::vector{sum.w}, snapshot(std::vector{sum.w}), sum.options());
  ASSERT_EQ(sum.log.size(), 2u);
  EXPECT_NE(sum.log[1].find("the checkpoint has none"), std::string::npos) << sum.log[1];
  RestoreOptions silent = sum.options();
  silent.without_step = true;
  restore(std::vector{sum.w}, snapshot(p), silent);
  EXPECT_EQ(sum.log.size(), 2u);
}

}  // namespace
}  // namespace graphsink::checkpoint_test
