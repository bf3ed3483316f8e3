// How the ranks of the stand-in meet, and show each other parts of their values.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "emulator.h"
#include "ranks/reduce.h"
#include "standin.h"

namespace nccl_standin {
namespace {

using graphsink::DType;
using graphsink::NcclReduction;
using graphsink::NcclType;
using graphsink::Reduction;

DType dtype_of(NcclType type) {
  switch (type) {
    case NcclType::i32:
      return DType::i32;
    case NcclType::i64:
      return DType::i64;
    case NcclType::f16:
      return DType::f16;
    case NcclType::f32:
      return DType::f32;
    case NcclType::f64:
      return DType::f64;
    case NcclType::bf16:
      return DType::bf16;
    case NcclType::u8:
      break;
  }
  return DType::u8;
}

Reduction reduction_of(NcclReduction reduction) {
  if (reduction == NcclReduction::max) return Reduction::max;
  return reduction == NcclReduction::mean ? Reduction::mean : Reduction::sum;
}

Shared* map(int file) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

void wait_a_little(int looks) {
  if (looks < 100) {
    sched_yield();
  } else {
    usleep(looks < 1000 ? 20 : 200);
  }
}

// Shows the others `bytes` of this rank, and calls `take` when all of them have shown theirs.
template <class Take>
bool show(Rank& rank, const void* mine, std::size_t bytes, const Take& take) {
  if (bytes > 0 && mine != nullptr) std::memcpy(rank.shared->parts[rank.rank], mine, bytes);
  if (!rank.meet()) return false;
  take();
  return rank.meet();
}

// Calls `part(first, bytes)` for one part after the other, until it returns false.
template <class Part>
bool for_parts(std::size_t bytes, const Part& part) {
  for (std::size_t first = 0; first < bytes; first += kPart)
    if (!part(first, std::min(kPart, bytes - first))) return false;
  return true;
}

const std::byte* place(const void* memory, std::size_t first) { return static_cast<const std::byte*>(memory) + first; }
std::byte* place(void* memory, std::size_t first) { return static_cast<std::byte*>(memory) + first; }

// Combines what all ranks show, in their order.
void reduce_parts(const Rank& rank, const Call& call, void* out, std::size_t bytes) {
  std::vector<std::byte> rows;
  for (int r = 0; r < rank.ranks; ++r) rows.insert(rows.end(), rank.shared->parts[r], rank.shared->parts[r] + bytes);
  const DType dtype = dtype_of(call.type);
  graphsink::reduce_rows(rows.data(), dtype, static_cast<std::int64_t>(bytes / graphsink::size_of(dtype)), rank.ranks,
                         reduction_of(call.reduction));
  std::memcpy(out, rows.data(), bytes);
}

// Whether all ranks are about to do the same. As with NCCL nothing else happens if they are not.
bool agree_on(Rank& rank, const Call& call) {
  rank.shared->calls[rank.rank] = call;
  if (!rank.meet()) return false;
  int other = 0;
  while (other < rank.ranks && rank.shared->calls[other] == call) ++other;
  if (other < rank.ranks)
    std::fprintf(stderr, "nccl stand-in: rank %d is at %s, and rank %d at %s\n", rank.rank, text_of(call).c_str(),
                 other, text_of(rank.shared->calls[other]).c_str());
  return rank.meet() && other == rank.ranks;
}

bool reduce_scatter(Rank& rank, const Call& call, const Operands& operands, std::size_t bytes) {
  for (int target = 0; target < rank.ranks; ++target) {
    const void* in = place(operands.in[0], static_cast<std::size_t>(target) * bytes);
    const bool is_done = for_parts(bytes, [&](std::size_t first, std::size_t part) {
      return show(rank, place(in, first), part, [&] {
        if (target == rank.rank) reduce_parts(rank, call, place(operands.out[0], first), part);
      });
    });
    if (!is_done) return false;
  }
  return true;
}

// A tensor on its way to another rank, or from one.
struct Transfer {
  Letter& letter;
  const std::byte* from;
  std::byte* to;
  std::size_t done = 0;
  bool has_told = false;

  // The next part, if it is there, or there is room for it. As with NCCL nothing more happens if the two ranks differ.
  bool take_step(const Call& call, std::size_t bytes) {
    if (done == bytes || letter.is_full.load() != (to != nullptr ? 1u : 0u)) return false;
    const std::size_t part = std::min(kLetter, bytes - done);
    if (to != nullptr) {
      if (!is_of(call)) return false;
      std::memcpy(to + done, letter.part, part);
    } else {
      letter.call = call;
      std::memcpy(letter.part, from + done, part);
    }
    done += part;
    letter.is_full.store(to != nullptr ? 0 : 1);
    return true;
  }

  // Whether the letter was sent by the same call; says once that it was not.
  bool is_of(const Call& call) {
    if (letter.call == call) return true;
    if (!std::exchange(has_told, true))
      std::fprintf(stderr, "nccl stand-in: a rank receives by %s what another one sends by %s\n", text_of(call).c_str(),
                   text_of(letter.call).c_str());
    return false;
  }
};

// Only the ranks that send something to each other take part.
bool exchange(Rank& rank, const Call& call, const Operands& operands, std::size_t bytes) {
  std::vector<Transfer> transfers;
  for (int other = 0; other < rank.ranks; ++other) {
    if (operands.in[other] != nullptr)
      transfers.push_back({rank.shared->letters[rank.rank][other], place(operands.in[other], 0), nullptr});
    if (operands.out[other] != nullptr)
      transfers.push_back({rank.shared->letters[other][rank.rank], nullptr, place(operands.out[other], 0)});
  }
  const auto is_done = [&](const Transfer& transfer) { return transfer.done == bytes; };
  for (int looks = 0; !std::all_of(transfers.begin(), transfers.end(), is_done); ++looks) {
    if (rank.is_aborted) return false;
    for (Transfer& transfer : transfers)
      if (transfer.take_step(call, bytes)) looks = 0;
    wait_a_little(looks);
  }
  return true;
}

bool do_call(Rank& rank, const Call& call, const Operands& operands, std::size_t bytes) {
  if (call.kind == Kind::reduce_scatter) return reduce_scatter(rank, call, operands, bytes);
  return for_parts(bytes, [&](std::size_t first, std::size_t part) {
    const bool is_shown = call.kind != Kind::broadcast || rank.rank == call.root;
    return show(rank, is_shown ? place(operands.in[0], first) : nullptr, part, [&] {
      if (call.kind == Kind::all_reduce) reduce_parts(rank, call, place(operands.out[0], first), part);
      if (call.kind == Kind::broadcast) std::memcpy(place(operands.out[0], first), rank.shared->parts[call.root], part);
      for (int r = 0; call.kind == Kind::all_gather && r < rank.ranks; ++r)
        std::memcpy(place(operands.out[0], static_cast<std::size_t>(r) * bytes + first), rank.shared->parts[r], part);
    });
  });
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast",
                                    "a group of ncclSend and ncclRecv"};
  return kNames[static_cast<int>(kind)];
}

std::string text_of(const Call& call) {
  return std::string(name_of(call.kind)) + " of " + std::to_string(call.count) + " elements of type " +
         std::to_string(static_cast<int>(call.type)) + ", reduction " +
         std::to_string(static_cast<int>(call.reduction)) + ", root " + std::to_string(call.root) +
         (call.is_captured != 0 ? ", captured" : ", not captured");
}

bool Rank::meet() {
  const std::uint32_t meeting = shared->meetings.load();
  if (shared->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks)) {
    shared->arrived.store(0);
    shared->meetings.fetch_add(1);
    return !is_aborted;
  }
  for (int looks = 0; shared->meetings.load() == meeting; ++looks) {
    if (is_aborted) return false;
    wait_a_little(looks);
  }
  return !is_aborted;
}

bool create(std::string& name) {
  // What nobody joins is gone when the process ends.
  static struct Names {
    std::vector<std::string> all;
    ~Names() {
      for (const std::string& each : all) shm_unlink(each.c_str());
    }
  } names;
  static std::atomic<int> count = 0;
  name = "/gs_nccl_" + std::to_string(getpid()) + "_" + std::to_string(count++);
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0) return false;
  const bool has_size = ftruncate(file, sizeof(Shared)) == 0;
  close(file);
  names.all.push_back(name);
  return has_size;
}

std::unique_ptr<Rank> join(const std::string& name, int ranks, int number) {
  const int file = shm_open(name.c_str(), O_RDWR, 0600);
  if (file < 0) return nullptr;
  auto rank = std::make_unique<Rank>();
  rank->shared = map(file);
  rank->ranks = ranks;
  rank->rank = number;
  if (rank->shared == nullptr) return nullptr;
  if (rank->shared->joined.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks)) shm_unlink(name.c_str());
  for (int looks = 0; rank->shared->joined.load() < static_cast<std::uint32_t>(ranks); ++looks) wait_a_little(looks);
  return rank;
}

void leave(Rank& rank) { munmap(rank.shared, sizeof(Shared)); }

void carry_out(Rank& rank, const Call& call, const Operands& operands) {
  if (const char* slow = std::getenv("GS_NCCL_SLOW_US")) usleep(static_cast<useconds_t>(std::atoi(slow)));
  const char* beside = std::getenv("GS_NCCL_BESIDE");
  for (int i = 0, most = beside != nullptr ? std::atoi(beside) : 0; i < most && emu::run_beside(); ++i) {
  }
  const bool stalls = std::getenv("GS_NCCL_STALL") != nullptr;
  const std::size_t bytes = call.count * graphsink::size_of(dtype_of(call.type));
  if (call.kind == Kind::exchange) {
    if (!stalls && exchange(rank, call, operands, bytes)) return;
  } else if (!stalls && agree_on(rank, call) && do_call(rank, call, operands, bytes)) {
    return;
  }
  for (int looks = 0; !rank.is_aborted; ++looks) wait_a_little(looks);
  if (std::getenv("GS_NCCL_GARBAGE") == nullptr || operands.out[0] == nullptr) return;
  const auto parts = call.kind == Kind::all_gather ? static_cast<std::size_t>(rank.ranks) : 1;
  std::memset(operands.out[0], 1, parts * bytes);
}

}  // namespace nccl_standin
