// The stand-in for NCCL on the software CUDA device: processes of one machine exchange values by POSIX shared memory.
// Each call is one kernel. As with NCCL all ranks must make the same calls in the same order, captured on all of them
// or on none, and not in the body of a conditional node; ranks that do not, hang, after a line on stderr, until
// ncclCommAbort(). That call and ncclCommDestroy() wait until no graph holds calls of the communicator. Its calls go
// into one capture at a time: as long as that has not ended, those in another one are refused. A sum is added up in the
// order of the ranks, in f32 for 16-bit floats. Two ranks may share a device.
//
// Environment: GS_NCCL_FAIL names a function whose calls return ncclSystemError; with GS_NCCL_STALL collectives do not
// end; with GS_NCCL_SLOW_US each begins so many microseconds later; with GS_NCCL_BESIDE each lets as many other
// operations of the device run before it meets the other ranks, if so many can run beside it; GS_NCCL_VERSION is an
// older version that it plays, such as 22809; with GS_NCCL_GARBAGE an aborted call leaves bytes of 1 in its results.
// They are read at each call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ranks/nccl_api.h"

namespace emu {
struct Capture;
}

namespace nccl_standin {

constexpr int kMostRanks = 8;
constexpr std::size_t kPart = std::size_t{1} << 18;    // bytes that a rank shows the others at once
constexpr std::size_t kLetter = std::size_t{1} << 14;  // and that it sends to one of them

enum class Kind : std::int32_t { all_reduce, all_gather, reduce_scatter, broadcast, exchange };

// What a rank is about to do. All ranks must do the same.
struct Call {
  Kind kind = Kind::all_reduce;
  graphsink::NcclType type = graphsink::NcclType::u8;
  graphsink::NcclReduction reduction = graphsink::NcclReduction::sum;
  std::int32_t root = 0;
  std::int32_t is_captured = 0;
  std::uint32_t unused = 0;
  std::uint64_t count = 0;  // elements, as the caller counts them
  friend bool operator==(const Call&, const Call&) = default;
};
const char* name_of(Kind kind);
std::string text_of(const Call& call);

// What one rank sends to another, part by part.
struct Letter {
  std::atomic<std::uint32_t> is_full;
  Call call;
  std::byte part[kLetter];
};

// Memory of all ranks, which begins as zeros.
struct Shared {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> meetings;
  Call calls[kMostRanks];
  alignas(64) std::byte parts[kMostRanks][kPart];
  Letter letters[kMostRanks][kMostRanks];  // by the rank that sends, then by the one that receives
};

// One rank of a communicator.
struct Rank {
  Shared* shared = nullptr;
  int ranks = 0;
  int rank = 0;
  std::atomic<bool> is_aborted = false;
  std::atomic<int> graphs = 0;                // that hold its calls
  std::weak_ptr<const emu::Capture> capture;  // that holds its last captured call
  std::string last_error;

  // Returns when all ranks have called it; false: the communicator was aborted meanwhile.
  bool meet();
};

// Makes the shared memory, and leaves its name.
bool create(std::string& name);
// Returns when all ranks have joined, and then nothing is left in the file system; null if there is no such memory.
std::unique_ptr<Rank> join(const std::string& name, int ranks, int rank);
void leave(Rank& rank);

// The operands of a call: of a group of sends and receives, those for each rank; null: there is none.
struct Operands {
  const void* in[kMostRanks] = {};
  void* out[kMostRanks] = {};
};
// Carries out the call, on the thread that plays the device. An aborted one leaves anything in the results.
void carry_out(Rank& rank, const Call& call, const Operands& operands);

}  // namespace nccl_standin
