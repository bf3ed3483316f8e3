#include "exec/memory/transfer.h"

#include "base/trace.h"

namespace graphsink {

Stream& Transfer::stream() {
  if (!stream_) stream_ = device_->make_stream();
  return *stream_;
}

Memory Transfer::allocate(std::size_t bytes) {
  std::lock_guard lock(*mutex_);
  return device_->allocate(bytes);
}

void Transfer::wait(Stream& stream) {
  std::lock_guard lock(*mutex_);
  device_->wait(stream);
}

void Transfer::upload(void* destination, const void* source, std::size_t bytes) {
  GRAPHSINK_TRACE(copy, "write");
  std::lock_guard lock(*mutex_);
  device_->upload(stream(), destination, source, bytes);
  device_->wait(stream());
}

void Transfer::download(void* destination, const void* source, std::size_t bytes) {
  GRAPHSINK_TRACE(copy, "read");
  std::lock_guard lock(*mutex_);
  device_->copy(stream(), destination, source, bytes);
  device_->wait(stream());
}

}  // namespace graphsink
