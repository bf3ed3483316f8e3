// SinkOptions::check_every: whether a launch would still do what the function enqueues now.
#include <cstring>

#include "base/number_text.h"
#include "capture/sink_cache_impl.h"
#include "device/cuda/node_values.h"

namespace graphsink {
namespace {

bool is_known_to_cuda(std::uintptr_t address, Calls& calls) {
  cudaPointerAttributes attributes = {};
  calls.check(cudaPointerGetAttributes(&attributes, reinterpret_cast<const void*>(address)),
              "cudaPointerGetAttributes");
  return attributes.type != cudaMemoryTypeUnregistered;
}

}  // namespace

void SinkCache::Impl::note_addresses(Sunk& sunk, cudaGraph_t graph) const {
  Calls& calls = *sunk.device.calls;
  sunk.addresses.clear();
  visit_values(graph, calls, [&](const NodeValue& value) {
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= value.bytes.size(); at += sizeof(std::uintptr_t)) {
      std::uintptr_t address = 0;
      std::memcpy(&address, &value.bytes[at], sizeof address);
      const std::uint64_t registration = memory_.find(address);
      if (registration == 0 && (address == 0 || !is_known_to_cuda(address, calls))) continue;
      sunk.addresses.push_back({address, registration, value.node + ", " + value.name});
    }
  });
}

SinkCache::Impl::Outcome SinkCache::Impl::check(Sunk& sunk, cudaStream_t stream, Work work) {
  if (options_.check_every <= 0 || ++sunk.launches_since_check < options_.check_every) return Outcome::captured;
  sunk.launches_since_check = 0;
  ++counts_.checks;
  Calls& calls = *sunk.device.calls;
  try {
    require_living_addresses(sunk);
    const GraphHandle now = capture_work(sunk.device, stream, LegacyStream::watched, work);
    const std::string change = difference(sunk.graph().graph(), now.get(), calls);
    if (change.empty()) return Outcome::captured;
    sunk.slot.refuse(CaptureFailed("capture", Where(), "what the function enqueues has changed: " + change,
                                   "put what changes into the key, or keep it in device memory"));
  } catch (const StreamLost&) {
    throw;
  } catch (const Error& e) {
    if (calls.is_lost()) throw;
    sunk.slot.drop(CaptureFailed(e.op(), e.where(), e.problem(), e.remedy(), e.code()));
  }
  note_failure(sunk, *sunk.slot.failure(), kAsItIs);
  return Outcome::failed;
}

void SinkCache::Impl::require_living_addresses(const Sunk& sunk) const {
  for (const GivenAddress& given : sunk.addresses) {
    const bool is_alive = given.registration > 0 ? memory_.find(given.address) == given.registration
                                                 : is_known_to_cuda(given.address, *sunk.device.calls);
    if (is_alive) continue;
    throw CaptureFailed(
        "capture", Where(),
        given.place + " is an address of memory that is not alive any more: " + address_text(given.address),
        "put the pointer into the key, or keep the memory as long as the key is used");
  }
}

}  // namespace graphsink
