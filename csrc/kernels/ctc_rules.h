// What the kernels of CTC share: one text for the CPU and the GPU, included where WISP_INLINE, exp_of, log_of and negative_infinity
// are known.

// The logarithm of the sum of what three are the logarithms of. Without a branch, so that loops over it become vectors.
template <class T> WISP_INLINE T add_logs(T a, T b, T c) {
    const T ab = a > b ? a : b, top = ab > c ? ab : c;
    const T sum = top + log_of(exp_of(a - top) + exp_of(b - top) + exp_of(c - top));
    return top == negative_infinity<T>() ? a + b + c : sum;  // NaN is not lost
}

// A sample: its labels, of which those that are no class count as blank.
struct CtcSample {
    const int64_t* labels;
    int64_t length, classes, blank;
    WISP_INLINE int64_t label(int64_t state) const {
        if (state % 2 == 0) return blank;
        const int64_t c = labels[state / 2];
        return c < 0 || c >= classes ? blank : c;
    }
    // Whether a state may be entered from two states before: two labels that differ.
    WISP_INLINE bool skips(int64_t state) const { return state % 2 == 1 && state > 1 && label(state) != label(state - 2); }
};
