// Where grid_sample reads: the neighbours of a point, their weights and how these change with it. One text for the CPU
// and the GPU, included where floor_of, nearest_of (ties to even) and the names of image.h are known.

// A coordinate in elements, and its derivative with respect to the grid's coordinate.
template <class T> struct Coordinate {
    T at, slope;
};
template <class T> WISP_INLINE Coordinate<T> to_elements(T x, int64_t size, bool align_corners) {
    if (align_corners) return {(x + 1) / 2 * T(size - 1), T(size - 1) / 2};
    return {((x + 1) * T(size) - 1) / 2, T(size) / 2};
}
template <class T> WISP_INLINE void clip(Coordinate<T>& c, int64_t size) {
    if (!(c.at > 0)) c = {0, 0};
    else if (c.at >= T(size - 1)) c = {T(size - 1), 0};
}
// Reflects at twice_low / 2 and twice_high / 2 until inside.
template <class T> WISP_INLINE void reflect(Coordinate<T>& c, int64_t twice_low, int64_t twice_high) {
    if (twice_low == twice_high) {
        c = {0, 0};
        return;
    }
    const T low = T(twice_low) / 2, span = T(twice_high - twice_low) / 2;
    T x = c.at - low;
    if (x < 0) {
        x = -x;
        c.slope = -c.slope;
    }
    const T flips = floor_of(x / span), extra = x - flips * span;
    const bool even = flips - 2 * floor_of(flips / 2) == 0;
    c.at = even ? extra + low : span - extra + low;
    if (!even) c.slope = -c.slope;
}
template <class T> WISP_INLINE void apply_padding(Coordinate<T>& c, int64_t size, const GridSample& g) {
    if (g.padding == GridPadding::border) clip(c, size);
    if (g.padding == GridPadding::reflection) {
        if (g.align_corners) reflect(c, 0, 2 * (size - 1));
        else reflect(c, -1, 2 * size - 1);
        clip(c, size);
    }
    if (!(c.at > T(-2147483000) && c.at < T(2147483000))) c.at = -100;  // NaN and what no integer can hold
}

// Neighbours of one point: places in the plane, weights, and d(weight)/d(coordinate) per axis (x, y, z).
template <class T> struct Neighbours {
    int count = 0;
    int64_t at[16];
    T weight[16], slope[16][3];
};

template <class T> WISP_INLINE void cubic_weights(T t, T* w) {
    const T a = T(-0.75);
    const auto inner = [&](T x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
    const auto outer = [&](T x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
    w[0] = outer(t + 1);
    w[1] = inner(t);
    w[2] = inner(1 - t);
    w[3] = outer(2 - t);
}
template <class T> WISP_INLINE void cubic_slopes(T t, T* w) {
    const T a = T(-0.75);
    const auto inner = [&](T x) { return (3 * (a + 2) * x - 2 * (a + 3)) * x; };
    const auto outer = [&](T x) { return (3 * a * x - 10 * a) * x + 8 * a; };
    w[0] = outer(t + 1);
    w[1] = inner(t);
    w[2] = -inner(1 - t);
    w[3] = -outer(2 - t);
}

template <class T> WISP_INLINE void bicubic_neighbours(const GridSample& g, const T* point, Neighbours<T>& n) {
    Coordinate<T> x = to_elements(point[0], g.in[2], g.align_corners);
    Coordinate<T> y = to_elements(point[1], g.in[1], g.align_corners);
    const T bound = T(1e9);
    if (!(x.at > -bound && x.at < bound)) x.at = -100;
    if (!(y.at > -bound && y.at < bound)) y.at = -100;
    const T x0 = floor_of(x.at), y0 = floor_of(y.at);
    T wx[4], wy[4], sx[4], sy[4];
    cubic_weights(x.at - x0, wx);
    cubic_weights(y.at - y0, wy);
    cubic_slopes(x.at - x0, sx);
    cubic_slopes(y.at - y0, sy);
    n.count = 0;
    for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 4; ++i) {
            Coordinate<T> cx = {x0 - 1 + T(i), 1}, cy = {y0 - 1 + T(j), 1};
            apply_padding(cx, g.in[2], g);
            apply_padding(cy, g.in[1], g);
            const int64_t ix = int64_t(cx.at), iy = int64_t(cy.at);
            if (cx.at < 0 || cy.at < 0 || ix >= g.in[2] || iy >= g.in[1]) continue;
            n.at[n.count] = iy * g.in[2] + ix;
            n.weight[n.count] = wx[i] * wy[j];
            n.slope[n.count][0] = sx[i] * wy[j] * x.slope;
            n.slope[n.count][1] = wx[i] * sy[j] * y.slope;
            ++n.count;
        }
}

template <class T> WISP_INLINE void neighbours(const GridSample& g, const T* point, Neighbours<T>& n) {
    if (g.interpolation == GridInterpolation::bicubic) return bicubic_neighbours(g, point, n);
    Coordinate<T> c[3];
    for (int d = 0; d < 3; ++d) {
        c[d] = {0, 0};
        if (d >= g.dims) continue;
        c[d] = to_elements(point[d], g.in[2 - d], g.align_corners);
        apply_padding(c[d], g.in[2 - d], g);
    }
    n.count = 0;
    if (g.interpolation == GridInterpolation::nearest) {
        int64_t index[3];
        for (int d = 0; d < 3; ++d) {
            index[d] = int64_t(nearest_of(c[d].at));
            if (index[d] < 0 || index[d] >= g.in[2 - d]) return;
        }
        n.count = 1;
        n.at[0] = (index[2] * g.in[1] + index[1]) * g.in[2] + index[0];
        n.weight[0] = 1;
        n.slope[0][0] = n.slope[0][1] = n.slope[0][2] = 0;
        return;
    }
    T low[3];
    for (int d = 0; d < 3; ++d) low[d] = floor_of(c[d].at);
    for (int corner = 0; corner < (1 << g.dims); ++corner) {
        T weight[3], sign[3];
        int64_t index[3];
        bool inside = true;
        for (int d = 0; d < 3; ++d) {
            const bool upper = corner >> d & 1;
            weight[d] = d >= g.dims ? T(1) : upper ? c[d].at - low[d] : low[d] + 1 - c[d].at;
            sign[d] = upper ? c[d].slope : -c[d].slope;
            index[d] = int64_t(low[d]) + upper;
            if (index[d] < 0 || index[d] >= g.in[2 - d]) inside = false;
        }
        if (!inside) continue;
        n.at[n.count] = (index[2] * g.in[1] + index[1]) * g.in[2] + index[0];
        n.weight[n.count] = weight[0] * weight[1] * weight[2];
        n.slope[n.count][0] = sign[0] * weight[1] * weight[2];
        n.slope[n.count][1] = weight[0] * sign[1] * weight[2];
        n.slope[n.count][2] = weight[0] * weight[1] * sign[2];
        ++n.count;
    }
}
