// Checkpoints of optimizers whose states are divided among ranks, for another number of ranks.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "graphsink/checkpoint.h"
#include "graphsink/ranks.h"
#include "ranks/tensor_part.h"

namespace graphsink {
namespace {

constexpr const char* kReshard = "reshard";
constexpr std::string_view kShard = ".shard";

// "w.shard2.adamw.m" is the shard of rank 2 of "w.adamw.m".
struct ShardName {
  std::string parameter;
  int rank = 0;
  std::string suffix;  // "", or begins with a dot

  std::string of_rank(std::size_t other) const {
    return parameter + std::string(kShard) + std::to_string(other) + suffix;
  }
};

// `is_parameter`: whether there is a Variable of this name, as names may hold ".shard1" by themselves.
template <class IsParameter>
std::optional<ShardName> as_shard(const std::string& name, const IsParameter& is_parameter) {
  for (std::size_t place = name.find(kShard); place != std::string::npos; place = name.find(kShard, place + 1)) {
    const char* const digits = name.data() + place + kShard.size();
    ShardName shard{name.substr(0, place), 0, ""};
    const auto [end, failure] = std::from_chars(digits, name.data() + name.size(), shard.rank);
    if (failure != std::errc() || shard.rank < 0) continue;
    shard.suffix.assign(end, name.data() + name.size());
    if ((shard.suffix.empty() || shard.suffix[0] == '.') && is_parameter(shard.parameter)) return shard;
  }
  return std::nullopt;
}

class Resharder {
 public:
  Resharder(std::span<const Checkpoint> ranks, std::span<const Variable> variables, const Where& where)
      : ranks_(ranks), where_(where), used_(ranks.size()) {
    for (const Variable& variable : variables) {
      types_.emplace(variable.name(), variable.type());
      const VariableData& data = *variable.data();
      if (data.division && !data.is_beside_another) parts_.emplace(data.name, data.division->part);  // no shards
    }
  }

  Checkpoint result() {
    expect_one_step();
    Checkpoint all;
    all.metadata = ranks_[0].metadata;
    all.unsupported = ranks_[0].unsupported;
    all.source = ranks_[0].source;
    for (const auto& [name, type] : types_)
      if (std::optional<Tensor> tensor = found(name, type)) all.tensors.insert_or_assign(name, *std::move(tensor));
    // Tensors that no Variable took stay, so that restore() can say that nobody has a place for them.
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      for (const auto& [name, tensor] : ranks_[rank].tensors)
        if (!used_[rank].contains(name) && (rank == 0 || !ranks_[0].tensors.contains(name)))
          all.tensors.emplace(name, tensor);
    return all;
  }

 private:
  std::optional<Tensor> found(const std::string& name, const TensorType& type) {
    if (const auto shard = as_shard(name, [this](const std::string& of) { return types_.contains(of); }))
      return part(*shard, type);
    if (const auto part = as_part(name, type)) return cut(*part, type);
    if (const Tensor* tensor = take(0, name)) {
      expect_equal(name, *tensor);
      // Where this rank has no shards, those of a parameter in f32 or f64 say what the parameter itself says.
      if (!is_16_bit(type.dtype)) mark_shards({name, 0, ""});
      return *tensor;
    }
    if (std::optional<Tensor> whole = whole_of_parts(name, type)) return whole;
    return rejoined(name, type);
  }

  // "w.part0.adamw.m" belongs to part 0 of "w", along the axis that the Variable "w.part0" says.
  struct PartName {
    std::string whole;   // "w"
    std::string suffix;  // ".adamw.m", or ""
    TensorPart part;
  };
  std::optional<PartName> as_part(const std::string& name, const TensorType& type) const {
    for (std::size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('.', end - 1)) {
      const std::string parameter = name.substr(0, end);
      const auto known = parts_.find(parameter);
      if (known != parts_.end() && types_.at(parameter).shape == type.shape)
        return PartName{parameter.substr(0, parameter.rfind(kPart)), name.substr(end), known->second};
    }
    return std::nullopt;
  }

  // From a tensor that may have been divided into other parts, or not at all.
  std::optional<Tensor> cut(const PartName& name, const TensorType& type) {
    const std::string of_whole = name.whole + name.suffix;
    TensorType whole = type;
    whole.shape[name.part.axis] *= name.part.count;
    if (const std::optional<Tensor> all = joined_parts(name.whole, name.suffix, whole))
      return cut_part(*all, name.part);
    const Tensor* undivided = take(0, of_whole);
    if (undivided == nullptr) return std::nullopt;
    expect_equal(of_whole, *undivided);
    if (undivided->shape() != whole.shape)
      fail("\"" + of_whole + "\" is " + to_string(undivided->type()) + ", and the program divides " + to_string(whole),
           "give the checkpoints of this model");
    return cut_part(*undivided, name.part);
  }

  // "w.adamw.m" from those of the parts of "w".
  std::optional<Tensor> whole_of_parts(const std::string& name, const TensorType& type) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      if (types_.contains(name.substr(0, dot)))
        if (std::optional<Tensor> whole = joined_parts(name.substr(0, dot), name.substr(dot), type)) return whole;
    return joined_parts(name, "", type);
  }

  // The tensor of which the checkpoints have parts.
  std::optional<Tensor> joined_parts(const std::string& name, const std::string& suffix, const TensorType& type) {
    std::vector<const Tensor*> parts;
    while (const Tensor* part = take_of_any(part_name(name, parts.size()) + suffix)) parts.push_back(part);
    if (parts.empty()) return std::nullopt;
    const TensorType& first = parts[0]->type();
    const auto count = static_cast<std::int64_t>(parts.size());
    Tensor whole(first.dtype, type.shape);
    for (int axis = 0; axis < type.shape.rank(); ++axis) {
      Shape shape = type.shape;
      shape[axis] /= count;
      if (shape != first.shape || shape[axis] * count != type.shape[axis]) continue;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i]->type() != first)
          fail("\"" + part_name(name, i) + suffix + "\" is " + to_string(parts[i]->type()) + ", and part 0 " +
                   to_string(first),
               "give the checkpoints of all ranks that saved, and no others");
        paste_part(*parts[i], {axis, static_cast<std::int64_t>(i), count}, whole);
      }
      return whole;
    }
    fail("the checkpoints have parts of \"" + name + suffix + "\", which is " +
             to_string(TensorType{first.dtype, type.shape}) + ": " + std::to_string(count) + " of " + to_string(first),
         "give the checkpoints of all ranks that saved, and no others");
  }

  // Ranks that have one part have equal ones.
  const Tensor* take_of_any(const std::string& name) {
    const Tensor* first = nullptr;
    std::size_t has_first = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Tensor* tensor = take(rank, name);
      if (tensor == nullptr) continue;
      if (first == nullptr) {
        first = tensor;
        has_first = rank;
      }
      if (!is_equal(*tensor, *first)) fail_as_different(name, has_first, rank);
    }
    return first;
  }

  // The part of a rank, of a tensor that may have been divided otherwise, or not at all.
  std::optional<Tensor> part(const ShardName& shard, const TensorType& type) {
    const std::int64_t elements = types_.at(shard.parameter).shape.size();
    const std::optional<Tensor> all =
        ranks_[0].tensors.contains(shard.of_rank(0)) ? joined(shard, elements) : undivided(shard);
    if (!all) return std::nullopt;
    if (type.shape.rank() != 1 || all->shape().size() != elements)
      fail("\"" + shard.parameter + shard.suffix + "\" has " + std::to_string(all->shape().size()) +
               " elements, and \"" + shard.parameter + "\" of the program " + std::to_string(elements),
           "give the checkpoints of this model");
    Tensor result(all->dtype(), type.shape);
    const std::int64_t first = std::min(shard.rank * type.shape[0], elements);
    copy(*all, first, result, 0, std::min(type.shape[0], elements - first));
    return result;
  }

  // The flat tensor of which each rank has a shard.
  Tensor joined(const ShardName& shard, std::int64_t elements) {
    std::optional<Tensor> all;
    const auto ranks = static_cast<std::int64_t>(ranks_.size());
    const std::int64_t part = (elements + ranks - 1) / ranks;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::string name = shard.of_rank(rank);
      const Tensor* mine = take(rank, name);
      if (mine == nullptr)
        fail("checkpoint " + std::to_string(rank) + described(rank) + " has no \"" + name + "\"",
             "give the checkpoints of all ranks that saved, in the order of the ranks; where several groups of ranks "
             "divided states, as in a grid, go on with the same ranks");
      if (!all) all.emplace(mine->dtype(), Shape{elements});
      if (mine->type() != TensorType{all->dtype(), {part}})
        fail("\"" + name + "\" is " + to_string(mine->type()) + ", and as one of " + std::to_string(ranks) +
                 " shards it would be " + to_string(TensorType{all->dtype(), {part}}),
             "give the checkpoints of all ranks that saved, in the order of the ranks");
      const std::int64_t first = std::min(static_cast<std::int64_t>(rank) * part, elements);
      copy(*mine, 0, *all, first, std::min(part, elements - first));
    }
    return *std::move(all);
  }

  // The same of one rank, whose optimizer divides nothing: its 16-bit parameters have a master copy.
  std::optional<Tensor> undivided(const ShardName& shard) {
    const Tensor* tensor = nullptr;
    if (shard.suffix.empty()) {
      for (const char* master : kMasters)
        if (tensor == nullptr) tensor = take(0, shard.parameter + master);
      if (tensor == nullptr && !is_16_bit(types_.at(shard.parameter).dtype)) tensor = take(0, shard.parameter);
    } else {
      tensor = take(0, shard.parameter + shard.suffix);
    }
    if (tensor == nullptr) return std::nullopt;
    Tensor flat(tensor->dtype(), Shape{tensor->shape().size()});
    copy(*tensor, 0, flat, 0, tensor->shape().size());
    return flat;
  }

  // "w.adamw.m" of one rank, from the shards of several.
  std::optional<Tensor> rejoined(const std::string& name, const TensorType& type) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      ShardName shard{name.substr(0, dot), 0, name.substr(dot)};
      if (std::find(std::begin(kMasters), std::end(kMasters), shard.suffix) != std::end(kMasters)) shard.suffix.clear();
      if (!types_.contains(shard.parameter) || !ranks_[0].tensors.contains(shard.of_rank(0))) continue;
      const Tensor flat = joined(shard, types_.at(shard.parameter).shape.size());
      if (flat.shape().size() != type.shape.size()) continue;
      Tensor result(flat.dtype(), type.shape);
      copy(flat, 0, result, 0, type.shape.size());
      return result;
    }
    return std::nullopt;
  }

  static bool is_equal(const Tensor& a, const Tensor& b) {
    return a.type() == b.type() && std::memcmp(a.data(), b.data(), b.bytes()) == 0;
  }
  void expect_equal(const std::string& name, const Tensor& first) const {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      const auto other = ranks_[rank].tensors.find(name);
      if (other != ranks_[rank].tensors.end() && !is_equal(other->second, first)) fail_as_different(name, 0, rank);
    }
  }
  [[noreturn]] void fail_as_different(const std::string& name, std::size_t first, std::size_t rank) const {
    fail("\"" + name + "\" is another one in checkpoint " + std::to_string(rank) + described(rank) +
             " than in checkpoint " + std::to_string(first) + described(first),
         "make parts of a tensor by divided_variable(); give other Variables that differ between ranks names of their "
         "own for each rank, and restore them by yourself");
  }

  void expect_one_step() const {
    if (ranks_.empty()) fail("no checkpoint", "give those of all ranks that saved, in the order of the ranks");
    const auto step = [&](std::size_t rank) {
      const auto entry = ranks_[rank].metadata.find("step");
      return entry == ranks_[rank].metadata.end() ? std::string() : entry->second;
    };
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank)
      if (step(rank) != step(0))
        fail("checkpoint 0" + described(0) + " is of step " + step(0) + ", and checkpoint " + std::to_string(rank) +
                 described(rank) + " of step " + step(rank),
             "give checkpoints of one step: the newest that all ranks have");
  }

  const Tensor* take(std::size_t rank, const std::string& name) {
    const auto entry = ranks_[rank].tensors.find(name);
    if (entry == ranks_[rank].tensors.end()) return nullptr;
    used_[rank].insert(name);
    return &entry->second;
  }
  void mark_shards(const ShardName& shard) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) (void)take(rank, shard.of_rank(rank));
  }
  std::string described(std::size_t rank) const {
    return ranks_[rank].source.empty() ? "" : " (" + ranks_[rank].source + ")";
  }
  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const {
    throw Error(kReshard, where_, problem, remedy);
  }

  static bool is_16_bit(DType dtype) { return dtype == f16 || dtype == bf16; }
  // Copies elements of flat tensors of one dtype.
  static void copy(const Tensor& from, std::int64_t first, Tensor& to, std::int64_t place, std::int64_t elements) {
    const std::size_t size = size_of(from.dtype());
    if (elements <= 0) return;
    const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * size; };
    std::memcpy(to.data() + bytes(place), from.data() + bytes(first), bytes(elements));
  }

  static constexpr const char* kMasters[] = {".adamw.master", ".sgd.master"};

  std::span<const Checkpoint> ranks_;
  Where where_;
  std::vector<std::set<std::string, std::less<>>> used_;  // for each rank, the tensors that found a place
  std::map<std::string, TensorType, std::less<>> types_;  // those of the Variables
  std::map<std::string, TensorPart, std::less<>> parts_;  // parts, by the names of their Variables
};

}  // namespace

Checkpoint reshard(std::span<const Checkpoint> ranks, std::span<const Variable> variables, Where where) {
  return Resharder(ranks, variables, where).result();
}

}  // namespace graphsink
