// SinkCache in a build without CUDA.
#include "graphsink/capture.h"

namespace graphsink {

class SinkCache::Impl {};

struct SinkCache::Call {
  Impl& impl;
};
SinkCache::Call SinkCache::impl(const Where&) const { return {*impl_}; }

SinkCache::SinkCache(SinkOptions, Where where) {
  throw Error("SinkCache", where, "this build of graphsink has no CUDA, so there is nothing to capture",
              "build graphsink with GRAPHSINK_FLAVOUR=cuda, or call the function without a SinkCache",
              ErrorCode::unavailable);
}
SinkCache::~SinkCache() = default;
SinkCache::SinkCache(SinkCache&&) noexcept = default;
SinkCache& SinkCache::operator=(SinkCache&&) noexcept = default;
void SinkCache::run(cudaStream_t, const Key&, Work, const SinkRunOptions&, Where) {}
void SinkCache::register_memory(const void*, std::size_t) {}
void SinkCache::forget_memory(const void*) {}
void SinkCache::try_again() {}
void SinkCache::clear() {}
SinkReport SinkCache::report() const { return {}; }
void SinkCache::write_node_names(const std::string&, Where) const {}

}  // namespace graphsink
