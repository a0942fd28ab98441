// What processors do that the compiler's vectors don't express. No other file includes the header of a processor.
//
// The first part is for any file; the second, for kernel files, is that of the instruction set they are compiled for. What a
// set lacks is written out lane by lane, so that kernels need not ask, except where another way is quicker then.
#pragma once
#include "isa.h"

#include <cstring>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace wisp::cpu {
namespace {

// ---- products of polynomials over two elements, for checksums

typedef uint64_t Bits128 __attribute__((vector_size(16)));

// Functions that call `carryless` are marked so, and called only where has_carryless().
#if defined(__x86_64__)
#define WISP_CARRYLESS __attribute__((target("pclmul,sse4.1")))
WISP_INLINE bool has_carryless() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
template <int a, int b> WISP_CARRYLESS WISP_INLINE Bits128 carryless(Bits128 x, Bits128 y) {  // of words a of x and b of y
    return (Bits128)_mm_clmulepi64_si128((__m128i)x, (__m128i)y, b << 4 | a);
}
#elif defined(__aarch64__)
#define WISP_CARRYLESS __attribute__((target("+crypto")))
WISP_INLINE bool has_carryless() { return getauxval(AT_HWCAP) & 1 << 4; }
template <int a, int b> WISP_CARRYLESS WISP_INLINE Bits128 carryless(Bits128 x, Bits128 y) {
    return (Bits128)vmull_p64(poly64_t(x[a]), poly64_t(y[b]));
}
#else
#define WISP_CARRYLESS
WISP_INLINE bool has_carryless() { return false; }
template <int a, int b> Bits128 carryless(Bits128 x, Bits128);
#endif

}  // namespace
}  // namespace wisp::cpu

#if defined(WISP_ISA)
namespace wisp::cpu::WISP_ISA {
namespace {

// ---- registers, and parts of them

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int registers = 32;
#else
constexpr int registers = 16;
#endif
template <class T> struct RegisterOf {
    typedef T type __attribute__((vector_size(WISP_VECTOR_BYTES)));
    typedef T loose __attribute__((vector_size(WISP_VECTOR_BYTES), aligned(sizeof(T)), may_alias));  // anywhere in memory
};
template <class T> using Register = typename RegisterOf<T>::type;
template <class T> constexpr int register_lanes = WISP_VECTOR_BYTES / int(sizeof(T));

// Keeps v in a register: the compiler would rather read memory again for each product.
template <class V> WISP_INLINE V kept(V v) {
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#elif defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
    return v;
}

// Lanes by a bit each, zeros in place of the others; and back. `compress` puts the lanes of the mask side by side.
#if defined(__AVX512F__)
constexpr bool has_masks = true;
WISP_INLINE Register<float> load_masked(const float* p, uint32_t mask) {
    return (Register<float>)_mm512_maskz_loadu_ps(__mmask16(mask), p);
}
WISP_INLINE Register<double> load_masked(const double* p, uint32_t mask) {
    return (Register<double>)_mm512_maskz_loadu_pd(__mmask8(mask), p);
}
WISP_INLINE void store_masked(float* p, uint32_t mask, Register<float> v) { _mm512_mask_storeu_ps(p, __mmask16(mask), (__m512)v); }
WISP_INLINE void store_masked(double* p, uint32_t mask, Register<double> v) { _mm512_mask_storeu_pd(p, __mmask8(mask), (__m512d)v); }
WISP_INLINE Register<float> compress(uint32_t mask, Register<float> v) {
    return (Register<float>)_mm512_maskz_compress_ps(__mmask16(mask), (__m512)v);
}
WISP_INLINE Register<double> compress(uint32_t mask, Register<double> v) {
    return (Register<double>)_mm512_maskz_compress_pd(__mmask8(mask), (__m512d)v);
}
#else
constexpr bool has_masks = false;
#endif

// The first `count` lanes (at most all), zeros above them; and back.
#if defined(__AVX512F__)
template <class T> WISP_INLINE Register<T> load_lanes(const T* p, int64_t count) { return load_masked(p, (1u << count) - 1); }
template <class T> WISP_INLINE void store_lanes(T* p, Register<T> v, int64_t count) { store_masked(p, (1u << count) - 1, v); }
#elif defined(__AVX2__)
WISP_INLINE __m256i lane_mask(int64_t count, float) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
WISP_INLINE __m256i lane_mask(int64_t count, double) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
WISP_INLINE Register<float> load_lanes(const float* p, int64_t count) {
    return (Register<float>)_mm256_maskload_ps(p, lane_mask(count, 0.f));
}
WISP_INLINE Register<double> load_lanes(const double* p, int64_t count) {
    return (Register<double>)_mm256_maskload_pd(p, lane_mask(count, 0.));
}
WISP_INLINE void store_lanes(float* p, Register<float> v, int64_t count) { _mm256_maskstore_ps(p, lane_mask(count, 0.f), (__m256)v); }
WISP_INLINE void store_lanes(double* p, Register<double> v, int64_t count) { _mm256_maskstore_pd(p, lane_mask(count, 0.), (__m256d)v); }
#else
template <class T> WISP_INLINE Register<T> load_lanes(const T* p, int64_t count) {
    if (count >= register_lanes<T>) return *(const typename RegisterOf<T>::loose*)p;
    Register<T> v{};
    for (int i = 0; i < register_lanes<T> - 1; ++i)
        if (i < count) v[i] = p[i];
    return v;
}
template <class T> WISP_INLINE void store_lanes(T* p, Register<T> v, int64_t count) {
    if (count >= register_lanes<T>) {
        *(typename RegisterOf<T>::loose*)p = v;
        return;
    }
    for (int i = 0; i < register_lanes<T> - 1; ++i)
        if (i < count) p[i] = v[i];
}
#endif

// ---- four sums of lanes at once

typedef float FourFloats __attribute__((vector_size(16)));
#if defined(__AVX512F__)
constexpr bool has_four_sums = true;
WISP_INLINE FourFloats four_sums(Register<float> a, Register<float> b, Register<float> c, Register<float> d) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b), _mm512_unpackhi_ps((__m512)a, (__m512)b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d), _mm512_unpackhi_ps((__m512)c, (__m512)d));
    const __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_maskz_extractf32x8_ps(0xff, all, 1));
    return (FourFloats)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
#elif defined(__aarch64__)
constexpr bool has_four_sums = true;
WISP_INLINE FourFloats four_sums(Register<float> a, Register<float> b, Register<float> c, Register<float> d) {
    return (FourFloats)vpaddq_f32(vpaddq_f32((float32x4_t)a, (float32x4_t)b), vpaddq_f32((float32x4_t)c, (float32x4_t)d));
}
#else
constexpr bool has_four_sums = false;
#endif

// ---- half precision: `halves_at_once` elements, 0 where it is computed with integers

#if defined(__F16C__)
constexpr int64_t halves_at_once = 8;
WISP_INLINE void floats_of_halves(float* to, const uint16_t* from) {
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
WISP_INLINE void halves_of_floats(uint16_t* to, const float* from) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__aarch64__)
constexpr int64_t halves_at_once = 4;
WISP_INLINE void floats_of_halves(float* to, const uint16_t* from) { vst1q_f32(to, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)))); }
WISP_INLINE void halves_of_floats(uint16_t* to, const float* from) { vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from)))); }
#else
constexpr int64_t halves_at_once = 0;
WISP_INLINE void floats_of_halves(float*, const uint16_t*) {}
WISP_INLINE void halves_of_floats(uint16_t*, const float*) {}
#endif

// ---- sums of products of pairs of bf16: sum[i] + a[2i] * b[2i] + a[2i + 1] * b[2i + 1]

// As with WISP_CARRYLESS. Denormal numbers are zeros to these instructions.
#if defined(__AVX512F__)
#define WISP_BF16_PAIRS __attribute__((target("avx512bf16")))
inline bool has_bf16_pairs() { return __builtin_cpu_supports("avx512bf16"); }
WISP_BF16_PAIRS WISP_INLINE Register<float> add_pairs(Register<float> sum, Register<uint32_t> a, Register<uint32_t> b) {
    return (Register<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
WISP_BF16_PAIRS WISP_INLINE void round_to_bf16(uint16_t* to, Register<float> v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)v));
}
#elif defined(__aarch64__)
#define WISP_BF16_PAIRS __attribute__((target("arch=armv8.2-a+bf16")))
inline bool has_bf16_pairs() { return getauxval(AT_HWCAP2) & 1 << 14; }
WISP_BF16_PAIRS WISP_INLINE Register<float> add_pairs(Register<float> sum, Register<uint32_t> a, Register<uint32_t> b) {
    return (Register<float>)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b);
}
WISP_BF16_PAIRS WISP_INLINE void round_to_bf16(uint16_t* to, Register<float> v) {
    vst1_u16(to, vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)v)));
}
#endif

// ---- products of matrices in tiles: eight registers of 16 rows of 64 bytes

// Written as text, so that no file needs the compiler's consent; called only where has_tiles(), between configure_tiles and
// release_tiles in one thread. Tile b of a product is packed in pairs: row i of it has steps 2i and 2i + 1 of 16 columns.
#if defined(__AVX512F__)
#define WISP_TILES
struct TileShapes {  // as the processor reads it
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);
// Linux lets a process use tiles when it asks, and refuses where a signal stack is too small for them; a fork inherits the answer.
inline bool has_tiles() {
    static const bool answer = [] {
        constexpr long request_permission = 0x1023, tile_data = 18;
        return tiles_allowed() && has_bf16_pairs() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
               syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    }();
    return answer;
}
WISP_INLINE void configure_tiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
WISP_INLINE void release_tiles() { asm volatile("tilerelease" ::: "memory"); }
template <int tile> WISP_INLINE void zero_tile() { asm volatile("tilezero %%tmm%c0" ::"i"(tile)); }
template <int tile> WISP_INLINE void load_tile(const void* from, int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(tile) : "memory");
}
template <int tile> WISP_INLINE void load_tile_once(const void* from, int64_t row_bytes) {  // and leave the first cache to others
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(tile) : "memory");
}
template <int tile> WISP_INLINE void store_tile(void* to, int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(tile) : "memory");
}
template <int sum, int a, int b> WISP_INLINE void multiply_tiles() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
}

// Pairs of the lanes of two vectors: of the first half of the lanes, of the last.
template <int from, int... i>
WISP_INLINE Register<uint16_t> pairs_of(Register<uint16_t> a, Register<uint16_t> b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (from + i / 2 + i % 2 * 32)...);
}
WISP_INLINE Register<uint16_t> first_pairs(Register<uint16_t> a, Register<uint16_t> b) {
    return pairs_of<0>(a, b, std::make_integer_sequence<int, 32>{});
}
WISP_INLINE Register<uint16_t> last_pairs(Register<uint16_t> a, Register<uint16_t> b) {
    return pairs_of<16>(a, b, std::make_integer_sequence<int, 32>{});
}

// The first `count` of 16 bf16 and back; of 32 half words, zeros above them.
WISP_INLINE Register<float> load_bf16(const uint16_t* p, int64_t count) {
    return (Register<float>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(__mmask16((1u << count) - 1), p)), 16);
}
WISP_BF16_PAIRS WISP_INLINE void round_to_bf16(uint16_t* to, Register<float> v, int64_t count) {
    _mm256_mask_storeu_epi16(to, __mmask16((1u << count) - 1), (__m256i)_mm512_cvtneps_pbh((__m512)v));
}
WISP_INLINE Register<uint16_t> load_halves(const uint16_t* p, int64_t count) {
    if (count >= 32) return *(const RegisterOf<uint16_t>::loose*)p;
    return (Register<uint16_t>)_mm512_maskz_loadu_epi16((1u << count) - 1, p);
}
#endif

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
#endif
