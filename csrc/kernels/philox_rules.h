// One of the ten rounds of Philox 4x32-10, the random bits of random.h: the text that the kernels of CPU and GPU share.
WISP_INLINE void philox_round(uint32_t& x0, uint32_t& x1, uint32_t& x2, uint32_t& x3, uint32_t& k0, uint32_t& k1) {
    const uint64_t p = uint64_t(0xD2511F53u) * x0, q = uint64_t(0xCD9E8D57u) * x2;
    x0 = uint32_t(q >> 32) ^ x1 ^ k0;
    x1 = uint32_t(q);
    x2 = uint32_t(p >> 32) ^ x3 ^ k1;
    x3 = uint32_t(p);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
}
