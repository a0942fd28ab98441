// Turns rows of the table into structs of generic expressions. Included by the kernels (where T is a number) and by
// the front doors (where T is a Tensor, or a Probe that finds out which operands a gradient uses).
// What follows the gradients in a row, facts and text, is read in csrc/python/pointwise_names.cpp.
// The including file provides constant<T>(double), parameter<T>(Param) and the functions that rows call.
#pragma once

enum : int { F = 1, C = 2, I = 4, B = 8, H = 16, Q = 32 };
enum Result : int { same, promote, boolean, real };
struct NoGradient {};
constexpr NoGradient none{};

#define WISP_ROW_BODY(EXPRESSION)                                                 \
    {                                                                             \
        [[maybe_unused]] auto k = [](double v) { return constant<T>(v); };        \
        [[maybe_unused]] auto p = [&](int i) { return parameter<T>(params[i]); }; \
        return EXPRESSION;                                                        \
    }
#define WISP_ROW_HEAD(ARITY, TYPES, RESULT) \
    static constexpr int arity = ARITY;     \
    static constexpr int types = TYPES;     \
    static constexpr Result result = RESULT;

#define UNARY(NAME, TYPES, RESULT, FORWARD, GRADIENT, ...)                                                                               \
    struct NAME##_row {                                                                                                                  \
        WISP_ROW_HEAD(1, TYPES, RESULT)                                                                                                  \
        template <class T> static WISP_INLINE auto forward([[maybe_unused]] T x, T, T, [[maybe_unused]] const Param* params)             \
            WISP_ROW_BODY(FORWARD) template <class T>                                                                                    \
            static WISP_INLINE                                                                                                           \
            auto gradient0([[maybe_unused]] T g, [[maybe_unused]] T x, T, T, [[maybe_unused]] T y, [[maybe_unused]] const Param* params) \
                WISP_ROW_BODY(GRADIENT)                                                                                                  \
    };
#define ACTIVATION UNARY
#define WISP_ROW_OPERANDS [[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c
#define WISP_ROW_GRADIENT(N, GRADIENT)                                                                                    \
    template <class T> static WISP_INLINE auto gradient##N([[maybe_unused]] T g, WISP_ROW_OPERANDS, [[maybe_unused]] T y, \
                                                           [[maybe_unused]] const Param* params) WISP_ROW_BODY(GRADIENT)
#define BINARY(NAME, TYPES, RESULT, FORWARD, GRADIENT_A, GRADIENT_B, ...)                                                                  \
    struct NAME##_row {                                                                                                                    \
        WISP_ROW_HEAD(2, TYPES, RESULT)                                                                                                    \
        template <class T> static WISP_INLINE auto forward(WISP_ROW_OPERANDS, [[maybe_unused]] const Param* params) WISP_ROW_BODY(FORWARD) \
            WISP_ROW_GRADIENT(0, GRADIENT_A) WISP_ROW_GRADIENT(1, GRADIENT_B)                                                              \
    };
#define TERNARY(NAME, TYPES, RESULT, FORWARD, GRADIENT_A, GRADIENT_B, GRADIENT_C, ...)                                                     \
    struct NAME##_row {                                                                                                                    \
        WISP_ROW_HEAD(3, TYPES, RESULT)                                                                                                    \
        template <class T> static WISP_INLINE auto forward(WISP_ROW_OPERANDS, [[maybe_unused]] const Param* params) WISP_ROW_BODY(FORWARD) \
            WISP_ROW_GRADIENT(0, GRADIENT_A) WISP_ROW_GRADIENT(1, GRADIENT_B) WISP_ROW_GRADIENT(2, GRADIENT_C)                             \
    };
