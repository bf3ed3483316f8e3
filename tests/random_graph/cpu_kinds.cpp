// Kinds of entries that are ops with a CPU body only.
#include <algorithm>

#include "site.h"

namespace graphsink::testing {
namespace {

// --- ops with a CPU body only

void infer_mix(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_same_dtype(2);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void mix_body(const CpuArgs& a) {
  for (std::int64_t i = 0; i < a.out_type(0).shape.size(); ++i)
    a.out<float>(0)[i] = 0.5f * a.in<float>(0)[i] - 0.25f * a.in<float>(1)[i];
}
const OpDef cpu_mix{.name = "cpu_mix", .infer = infer_mix, .bodies = {mix_body}};

void infer_pair(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
  a.out(i32, a.in(0).shape);
}
void pair_body(const CpuArgs& a) {
  for (std::int64_t i = 0; i < a.out_type(0).shape.size(); ++i) {
    float x = a.in<float>(0)[i];
    a.out<float>(0)[i] = 1.0f - 0.5f * x;
    a.out<std::int32_t>(1)[i] = static_cast<std::int32_t>(x * 3.0f);
  }
}
const OpDef cpu_pair{.name = "cpu_pair", .infer = infer_pair, .bodies = {pair_body}};

struct EffectAttrs {
  std::shared_ptr<EffectLog> log;
  int id;
};
void infer_effect(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void effect_body(const CpuArgs& a) {
  const auto* bytes = a.in<unsigned char>(0);
  std::size_t count = a.in_type(0).bytes();
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (std::size_t i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  std::copy(bytes, bytes + count, a.out<unsigned char>(0));
  const auto& attrs = a.attrs<EffectAttrs>();
  std::lock_guard lock(attrs.log->mutex);
  attrs.log->entries.push_back({attrs.id, hash});
}
const OpDef cpu_effect{
    .name = "cpu_effect", .infer = infer_effect, .traits = {.host_effect = true}, .bodies = {effect_body}};

// In files there is the id; the log is that of the graph which the thread compares.
thread_local std::shared_ptr<EffectLog> log_of_files;
struct EffectInFile {
  int id = 0;
  static auto fields(auto& s) { return std::tie("id", s.id); }
};
void write_effect(FieldIo& io, const Attrs& attrs) {
  EffectInFile file{attrs.as<EffectAttrs>().id};
  transfer_value(io, file);
}
Attrs read_effect(FieldIo& io) {
  EffectInFile file;
  transfer_value(io, file);
  return EffectAttrs{log_of_files, file.id};
}

Values cpu_effect_of(Site& s) {
  ++s.building.counts["effect"];
  return emit(cpu_effect, {s.any(0)}, EffectAttrs{s.building.effects, s.entry.id});
}

const Kind kCpuKinds[] = {
    {"cpu_mix", Family::cpu_only, 2, 0,
     [](Site& s) {
       Value x = Site::as(s.any(0), f32);
       return emit(cpu_mix, {x, Site::fit(Site::as(s.any(1), f32), x.shape())});
     }},
    {"cpu_pair", Family::cpu_only, 1, 0, [](Site& s) { return emit(cpu_pair, {Site::as(s.any(0), f32)}); }},
    {"cpu_effect", Family::cpu_only, 1, 0, cpu_effect_of},
};

}  // namespace

std::span<const Kind> cpu_kinds() { return kCpuKinds; }

std::vector<FileOp> cpu_file_ops(std::shared_ptr<EffectLog> log) {
  log_of_files = std::move(log);
  return {file_op(cpu_mix), file_op(cpu_pair), {&cpu_effect, {write_effect, read_effect}}};
}

}  // namespace graphsink::testing
