// What the notes of a run become: programs, and calls between them.
#pragma once
#include "tape.h"

namespace wisp::compile {

// A program, or a note that is run as always (tape.h), without the addresses.
struct Group {
    struct Source {
        uint32_t note;
        int operand;
        int64_t begin = 0;  // elements from where the operand does
    };
    Dims sizes;
    Device device;
    bool is_call = false;
    bool beside_last = false;  // it needs nothing of the group before it: a GPU may run the two at once
    uint32_t call = 0;         // the note of that
    uint32_t made = 0;         // the note whose value it leaves: its own, or a cast of it
    kernels::Program program;
    std::vector<Source> sources;   // of the inputs
    std::vector<uint32_t> makers;  // the notes of the steps
    std::vector<bool> inlined;     // which of them are values that another program may keep
};

struct Plan {
    std::vector<uint64_t> key;
    std::vector<Group> groups;
    std::vector<uint32_t> temporaries;  // notes whose values later programs need, though nobody sees them
    Counts counts;                      // of one run
    int64_t work = 0;
};

void fuse(const std::vector<Note>& notes, Plan& plan);  // fuse.cpp: all of it but the key

}  // namespace wisp::compile
