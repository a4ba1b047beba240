// Fibers: stacks with a guard page, and the switch between them.
#ifndef TILEC_HOST_CONTEXT_H
#define TILEC_HOST_CONTEXT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(TILEC_UCONTEXT) && defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
#define TILEC_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace tilec_host {

#ifdef TILEC_SWITCH

/// A suspended computation: the registers that a call preserves lie on its stack.
struct Context {
  void* top;
};

extern "C" void tilec_host_switch(void** save, void* load);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.type tilec_host_switch, @function
tilec_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tilec_host_switch, . - tilec_host_switch
)");
constexpr int kReturnWord = 6;
constexpr int kFrameWords = 8;  // the return address, and one word so that the stack is as behind a call
#else
asm(R"(
.text
.p2align 2
.type tilec_host_switch, %function
tilec_host_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size tilec_host_switch, . - tilec_host_switch
)");
constexpr int kReturnWord = 11;
constexpr int kFrameWords = 20;
#endif

inline void prepare_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(static_cast<char*>(stack) + bytes) - kFrameWords;
  for (int i = 0; i < kFrameWords; ++i) top[i] = nullptr;
  top[kReturnWord] = reinterpret_cast<void*>(entry);
  context.top = top;
}

inline void switch_context(Context& from, Context& to) { tilec_host_switch(&from.top, to.top); }

#else

struct Context {
  ucontext_t state;
};

inline void prepare_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = bytes;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

inline void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

#endif

/// Stacks that a caller keeps between launches of whatever kernels. Nobody else may use them at the
/// same time.
struct KeptStacks {
  char* base;
  int64_t size;  // bytes
  int64_t each;  // bytes from one stack to the next
};

/// `count` stacks of `bytes` each, with an unmapped page below every one; those that are kept, where
/// they suffice. What is made takes their place, unless it is more than `kMostKept`.
class Stacks {
 public:
  Stacks(int count, size_t bytes, KeptStacks* kept = nullptr)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), kept_(kept) {
    bytes_ = (bytes + page_ - 1) / page_ * page_;
    size_ = static_cast<size_t>(count) * (bytes_ + page_);
    if (kept && kept->base && static_cast<size_t>(kept->size) >= size_ &&
        static_cast<size_t>(kept->each) == bytes_ + page_) {
      base_ = kept->base;
      return;
    }
    void* base = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base_ = base == MAP_FAILED ? nullptr : static_cast<char*>(base);
    for (int i = 0; base_ && i < count; ++i) mprotect(base_ + i * (bytes_ + page_), page_, PROT_NONE);
    if (!base_ || !kept || count > kMostKept) return;
    if (kept->base) munmap(kept->base, static_cast<size_t>(kept->size));
    *kept = {base_, static_cast<int64_t>(size_), static_cast<int64_t>(bytes_ + page_)};
  }
  ~Stacks() {
    if (base_ && !(kept_ && base_ == kept_->base)) munmap(base_, size_);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  bool whole() const { return base_ != nullptr; }
  void* at(int i) const { return base_ + i * (bytes_ + page_) + page_; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr int kMostKept = 4096;
  size_t page_, bytes_, size_;
  KeptStacks* kept_;
  char* base_;
};

}  // namespace tilec_host

#endif
