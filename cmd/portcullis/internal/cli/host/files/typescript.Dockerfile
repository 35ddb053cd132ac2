# syntax=docker/dockerfile:1
# PORTCULLIS is a clone of the repository of the SDK:
# docker build --build-context portcullis="$PORTCULLIS" -t imagepolicy:dev .
FROM node:22.21.1-bookworm-slim AS build
WORKDIR /src/sdk
COPY --from=portcullis sdk/typescript/package.json sdk/typescript/package-lock.json ./
RUN npm ci --ignore-scripts
COPY --from=portcullis sdk/typescript ./
RUN npm run build && npm pack --ignore-scripts --pack-destination /tmp
WORKDIR /app
COPY . .
RUN npm install --ignore-scripts --no-save /tmp/portcullis-mesh-host-*.tgz && npm run build \
  && npm prune --ignore-scripts --no-save --omit=dev

FROM node:22.21.1-bookworm-slim
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist/src dist/src
USER 65532:65532
ENTRYPOINT ["node", "dist/src/main.js"]
