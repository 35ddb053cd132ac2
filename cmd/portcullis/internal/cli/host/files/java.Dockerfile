# syntax=docker/dockerfile:1
# PORTCULLIS is a clone of the repository of the SDK:
# docker build --build-context portcullis="$PORTCULLIS" -t imagepolicy:dev .
FROM maven:3.9.11-eclipse-temurin-17 AS build
WORKDIR /src
COPY --from=portcullis LICENSE ./
COPY --from=portcullis proto proto
COPY --from=portcullis sdk/java sdk/java
RUN mvn -B -q -f sdk/java/pom.xml -pl protocol,host,testing -am install -DskipTests -Dmaven.javadoc.skip -Dspotless.check.skip
WORKDIR /src/host
COPY . .
RUN mvn -B -q package -DskipTests

FROM eclipse-temurin:17.0.15_6-jre
COPY --from=build /src/host/target/lib /app/lib
COPY --from=build /src/host/target/imagepolicy-0.1.0.jar /app/
USER 65532:65532
# Names are resolved again every 5 s, not every 30 s.
ENTRYPOINT ["java", "-XX:MaxRAMPercentage=75", "-Dsun.net.inetaddr.ttl=5", "-jar", "/app/imagepolicy-0.1.0.jar"]
