// Ops and helpers that several tests use.
#pragma once

#include <algorithm>
#include <ostream>
#include <stdexcept>
#include <vector>

#include "graphsink/graphsink.h"

namespace graphsink {
// Makes GoogleTest print the name instead of the bytes.
inline void PrintTo(DeviceId id, std::ostream* out) { *out << to_string(id); }
}  // namespace graphsink

namespace graphsink::testing {

// Returns all devices of this build: the CPU, and a CUDA device (real or emulated) if there is one.
inline std::vector<DeviceId> devices() {
  std::vector<DeviceId> result{cpu()};
  if (cuda_device_count() > 0) result.push_back(cuda(0));
  return result;
}

// The CompileOptions::further_devices for a program on `device`: the second CUDA device, if there is one.
inline std::vector<DeviceId> further_devices(DeviceId device) {
  if (device.kind == DeviceKind::cuda && cuda_device_count() > 1) return {cuda(1)};
  return {};
}

inline void infer_like_first(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}

// x + 1, with a CPU body only.
inline void plus_one(const CpuArgs& a) {
  const auto* x = a.in<float>(0);
  auto* y = a.out<float>(0);
  for (std::int64_t i = 0; i < a.in_type(0).shape.size(); ++i) y[i] = x[i] + 1.0f;
}
inline const OpDef cpu_plus_one{.name = "cpu_plus_one", .infer = infer_like_first, .bodies = {plus_one}};

// Throws if the first element is negative.
inline void refuse_negative(const CpuArgs& a) {
  const auto* x = a.in<float>(0);
  if (a.in_type(0).shape.size() > 0 && x[0] < 0.0f) throw std::runtime_error("negative input");
  std::copy(x, x + a.in_type(0).shape.size(), a.out<float>(0));
}
inline const OpDef cpu_refuse_negative{
    .name = "refuse_negative", .infer = infer_like_first, .bodies = {refuse_negative}};

// Two layers, trained by adamw. Records "loss".
inline Graph small_mlp() {
  Graph g;
  Value x = g.feed("x", f32, {32, 64});
  Value t = g.feed("t", i32, {32});
  Variable w1("w1", Tensor::kaiming({64, 48}, 1)), w2("w2", Tensor::kaiming({48, 10}, 2));
  Value loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), t);
  adamw(loss, {w1, w2}, {.lr = 1e-3});
  g.record("loss", loss);
  return g;
}

}  // namespace graphsink::testing
