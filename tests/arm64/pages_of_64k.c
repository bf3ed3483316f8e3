// Preloaded, it gives a program the rules of a kernel whose pages have 64 KiB, as on many ARM servers, on one with
// shorter pages: sysconf() says 65,536, addresses must be multiples of that, and lengths are rounded up.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const uintptr_t kPage = 65536;

static uintptr_t round_up(uintptr_t x) { return (x + kPage - 1) / kPage * kPage; }

static int is_refused(const char* what, const void* address) {
  if ((uintptr_t)address % kPage == 0) return 0;
  fprintf(stderr, "pages of 64 KiB: %s(%p): EINVAL\n", what, address);
  errno = EINVAL;
  return 1;
}

static void* kernel_mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  return (void*)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  const size_t whole = round_up(length);
  if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
    if (is_refused("mmap", address)) return MAP_FAILED;
    return kernel_mmap(address, whole, protection, flags, file, offset);
  }
  // A page more than asked for has the pages wanted within it.
  char* begin = kernel_mmap(NULL, whole + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return MAP_FAILED;
  char *first = (char*)round_up((uintptr_t)begin), *end = begin + whole + kPage;
  if (first > begin) syscall(SYS_munmap, begin, first - begin);
  if (end > first + whole) syscall(SYS_munmap, first + whole, end - first - whole);
  // Of a file, the bytes behind its last page are not there, as on any kernel.
  void* mapped = kernel_mmap(first, file < 0 ? whole : length, protection, flags | MAP_FIXED, file, offset);
  if (mapped == MAP_FAILED) syscall(SYS_munmap, first, whole);
  return mapped;
}
void* mmap64(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  return mmap(address, length, protection, flags, file, offset);
}

int munmap(void* address, size_t length) {
  return is_refused("munmap", address) ? -1 : (int)syscall(SYS_munmap, address, round_up(length));
}

int mprotect(void* address, size_t length, int protection) {
  return is_refused("mprotect", address) ? -1 : (int)syscall(SYS_mprotect, address, round_up(length), protection);
}

int madvise(void* address, size_t length, int advice) {
  return is_refused("madvise", address) ? -1 : (int)syscall(SYS_madvise, address, round_up(length), advice);
}

long sysconf(int name) {
  if (name == _SC_PAGESIZE) return (long)kPage;
  long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return next(name);
}

int getpagesize(void) { return (int)kPage; }
