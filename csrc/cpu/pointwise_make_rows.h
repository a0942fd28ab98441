// From here on a row of the table is the entry of its kernels, after the structs of the rows have been made.
#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef TERNARY
#define UNARY(name, ...) make_row<name##_row>(),
#define ACTIVATION UNARY
#define BINARY UNARY
#define TERNARY UNARY
