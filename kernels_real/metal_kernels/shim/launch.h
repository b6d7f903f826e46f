// A launch on one thread of the system: threadgroups one after another, each thread of one a fibre.
//
// A barrier swaps to the next fibre. So the order of threads is known, and a barrier that only some of them reach
// is seen: all threads must stand at the same line, or all have ended.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ucontext.h>

namespace metal_shim {

using uint = unsigned int;

struct uint3 {
    uint x, y, z;
};

enum Outcome { done, barrier_divergence, index_out_of_bounds };  // the host knows them by number

constexpr uint most_threads = 1024;
constexpr int64_t stack_bytes = 65536;

enum class State { ready, at_barrier, finished, failed };

struct Fibre {
    ucontext_t context;
    State state;
    int line;  // of the barrier
};

struct Launch {
    uint3 block, group;
    uint thread;  // index in the threadgroup of the one that runs
    void (*body)();
    char* message;
    int64_t message_bytes;
    Outcome outcome;
    ucontext_t scheduler;
};

static Launch launch;
static Fibre fibres[most_threads];

// An array in threadgroup memory. It holds NaN when a threadgroup begins, as on a GPU it holds anything.
struct ThreadgroupMemory {
    ThreadgroupMemory(void* data, size_t bytes);
    void clear() { std::memset(data, 0xff, bytes); }

    void* data;
    size_t bytes;
    ThreadgroupMemory* next;
};

static ThreadgroupMemory* first_memory = nullptr;

inline ThreadgroupMemory::ThreadgroupMemory(void* data, size_t bytes)
    : data(data), bytes(bytes), next(first_memory) {
    first_memory = this;
    clear();
}

inline uint threads_of_group() { return launch.block.x * launch.block.y * launch.block.z; }

inline uint3 thread_position() {
    const uint3 b = launch.block;
    return {launch.thread % b.x, launch.thread / b.x % b.y, launch.thread / (b.x * b.y)};
}

// Go back to the scheduler.
inline void leave(State state) {
    Fibre& fibre = fibres[launch.thread];
    fibre.state = state;
    swapcontext(&fibre.context, &launch.scheduler);
}

inline void barrier(int line) {
    fibres[launch.thread].line = line;
    leave(State::at_barrier);
}

inline void enter() {
    launch.body();
    leave(State::finished);
}

// End the launch at an index of the running thread.
[[noreturn]] inline void out_of_bounds(const char* name, int64_t index, int64_t length) {
    const uint3 g = launch.group, t = thread_position();
    launch.outcome = index_out_of_bounds;
    std::snprintf(launch.message, launch.message_bytes,
                  "%s[%lld] is outside its %lld elements: threadgroup (%u, %u, %u), thread (%u, %u, %u)", name,
                  (long long)index, (long long)length, g.x, g.y, g.z, t.x, t.y, t.z);
    leave(State::failed);
    __builtin_unreachable();
}

inline void describe_divergence(const Fibre& waiting, const Fibre& other) {
    const uint threads = threads_of_group();
    const uint3 g = launch.group;
    uint arrived = 0;
    for (uint i = 0; i < threads; ++i)
        arrived += fibres[i].state == State::at_barrier && fibres[i].line == waiting.line;
    char place[64] = "has ended";
    if (other.state == State::at_barrier) std::snprintf(place, sizeof place, "waits at line %d", other.line);
    launch.outcome = barrier_divergence;
    std::snprintf(launch.message, launch.message_bytes,
                  "only %u of %u threads of threadgroup (%u, %u, %u) reach the barrier at line %d; thread %d %s",
                  arrived, threads, g.x, g.y, g.z, waiting.line, int(&other - fibres), place);
}

// Say whether all threads stand at one barrier or all have ended; else describe the first that differs.
inline bool together() {
    const Fibre& first = fibres[0];
    for (uint i = 1; i < threads_of_group(); ++i) {
        const Fibre& other = fibres[i];
        if (other.state == first.state && (first.state == State::finished || other.line == first.line)) continue;
        const bool first_waits = first.state == State::at_barrier;
        describe_divergence(first_waits ? first : other, first_waits ? other : first);
        return false;
    }
    return true;
}

// Run every thread to its next barrier or its end; say whether none has failed.
inline bool advance(bool backwards) {
    const uint threads = threads_of_group();
    for (uint i = 0; i < threads; ++i) {
        launch.thread = backwards ? threads - 1 - i : i;
        Fibre& fibre = fibres[launch.thread];
        swapcontext(&launch.scheduler, &fibre.context);
        if (fibre.state == State::failed) return false;
    }
    return true;
}

inline bool run_group(char* stacks, bool backwards) {
    for (ThreadgroupMemory* memory = first_memory; memory; memory = memory->next) memory->clear();
    for (uint i = 0; i < threads_of_group(); ++i) {
        Fibre& fibre = fibres[i];
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = stacks + i * stack_bytes;
        fibre.context.uc_stack.ss_size = stack_bytes;
        fibre.state = State::ready;
        makecontext(&fibre.context, enter, 0);
    }
    do {
        if (!advance(backwards) || !together()) return false;
    } while (fibres[0].state != State::finished);
    return true;
}

// Run body in every thread of a grid. stacks: stack_bytes for each thread of a threadgroup, most_threads at most.
// Between barriers the threads of a threadgroup go in ascending order, or backwards.
inline Outcome run(void (*body)(), uint3 grid, uint3 block, char* stacks, bool backwards, char* message,
                   int64_t message_bytes) {
    launch.block = block;
    launch.body = body;
    launch.message = message;
    launch.message_bytes = message_bytes;
    launch.outcome = done;
    for (uint z = 0; z < grid.z; ++z)
        for (uint y = 0; y < grid.y; ++y)
            for (uint x = 0; x < grid.x; ++x) {
                launch.group = {x, y, z};
                if (!run_group(stacks, backwards)) return launch.outcome;
            }
    return done;
}

}  // namespace metal_shim
